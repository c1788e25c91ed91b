"""A file of slices gives back what was put in, and says so when it is not what was written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fairway.lake.captures.slices import DamagedSlices, Slices, Writer


def rows(*numbers: int) -> pa.Table:
    names = pa.array([f"name {number % 3}" for number in numbers]).dictionary_encode()
    return pa.table({"number": pa.array(numbers, pa.int64()), "name": names})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "below" / "part-0.slices"
    writer = Writer(target, 4)
    writer.write(3, rows(1, 2))
    writer.write(0, pa.concat_tables([rows(3), rows(4, 5)]))
    writer.write(3, rows(6))
    assert not target.exists(), "it gets its name when it is complete"
    writer.close()
    return target


def test_each_slice_gives_its_rows_in_the_order_in_which_they_came(path: Path) -> None:
    with Slices(path) as file:
        assert [(stream.slice, stream.rows) for stream in file.streams] == [(3, 2), (0, 3), (3, 1)]
        found = {number: [table.column("number").to_pylist() for table in file.read(number)] for number in range(4)}
    assert found == {0: [[3, 4, 5]], 1: [], 2: [], 3: [[1, 2], [6]]}


def test_only_the_columns_that_are_named_are_read(path: Path) -> None:
    with Slices(path) as file:
        (table,) = file.read(0, ["name"])
    assert table.to_pydict() == {"name": ["name 0", "name 1", "name 2"]}


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    Writer(tmp_path / "part-0.slices", 4).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_file_that_lost_its_end_is_named(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedSlices, match=r"part-0\.slices is damaged: remove its folder"):
        Slices(path)
