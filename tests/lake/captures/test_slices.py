"""A file of slices gives back what was put in, and says so when it is not what was written."""

from __future__ import annotations

from itertools import chain
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


def test_a_single_wrong_bit_is_noticed(path: Path) -> None:
    """Arrow would read many of them as other rows."""
    whole = path.read_bytes()
    with Slices(path) as file:
        end = max(stream.offset + stream.length for stream in file.streams)
    for place in range(0, end, 97):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 4,)) + whole[place + 1 :])
        with Slices(path) as file, pytest.raises(DamagedSlices, match="is damaged"):
            list(chain.from_iterable(map(file.read, range(4))))


def test_an_index_that_says_something_else_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"streams"', b'"strings"'))
    with pytest.raises(DamagedSlices):
        Slices(path)


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_file_that_lost_its_end_is_named(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedSlices, match=r"part-0\.slices is damaged: remove its folder"):
        Slices(path)
