"""A packed capture is unpacked as far as it goes, and what is wrong with it is said in the right words."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from fairway.lake.captures.files import identity, opened, seen
from tests.capture.adversaries import pcap
from tests.lake.captures.reading import records_of


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def test_a_packed_copy_has_the_identity_of_the_capture(tmp_path: Path) -> None:
    """Otherwise every packet would be there twice, and half of them would look like losses."""
    data = pcap([b"one", b"two"])
    for name, content in {"a": data, "b": gzip.compress(data), "c": zstd(data)}.items():
        (tmp_path / name).write_bytes(content)
    assert len({identity(seen(str(tmp_path / name))) for name in "abc"}) == 1


def test_a_capture_that_was_named_from_a_folder_is_read_from_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.pcap").write_bytes(pcap([b"one"]))
    monkeypatch.chdir(tmp_path)
    file = seen("here.pcap")
    monkeypatch.chdir("/")
    with opened(file) as (data, problem):
        assert problem is None
        assert len(data) == file.size_bytes


@pytest.mark.parametrize("share", [0.5, 0.999])
def test_what_stands_before_a_damage_of_a_packed_capture_is_read(tmp_path: Path, share: float) -> None:
    """A step that fails takes with it what it has unpacked; so near a damage steps are short."""
    bodies = [Random(number).randbytes(500) for number in range(2_000)]
    packed = bytearray(gzip.compress(pcap(bodies), mtime=0))
    packed[int(len(packed) * share)] ^= 0xFF
    (tmp_path / "damaged.pcap.gz").write_bytes(packed)
    rows = records_of(tmp_path / "damaged.pcap.gz").num_rows
    assert rows >= share * len(bodies) - 130  # zlib may see a damage up to 64 kB late, and not at once


PACKED = {"gzip": lambda data: gzip.compress(data, mtime=0), "zstd": zstd}
EARLY = "its {} data ends early: it is cut off or damaged"


def said_of(packed: bytes | bytearray, path: Path) -> str | None:
    path.write_bytes(packed)
    with opened(seen(str(path))) as (_, problem):
        return problem


@pytest.mark.parametrize("packing", PACKED)
def test_packed_data_that_is_cut_off_anywhere_ends_early_and_is_not_called_damaged(
    packing: str, tmp_path: Path
) -> None:
    random = Random(1)
    whole = PACKED[packing](pcap([random.randbytes(500) for _ in range(200)]))
    assert said_of(whole, tmp_path / "whole") is None
    for kept in [*range(4, 40), *random.sample(range(40, len(whole)), 40), len(whole) - 1]:
        assert said_of(whole[:kept], tmp_path / "cut") == EARLY.format(packing), f"of the first {kept} bytes"


@pytest.mark.parametrize("packing", PACKED)
def test_packed_data_that_is_damaged_is_called_so(packing: str, tmp_path: Path) -> None:
    random = Random(1)
    packed = bytearray(PACKED[packing](pcap([bytes(random.choices(b"abcd", k=500)) for _ in range(200)])))
    packed[len(packed) // 2] ^= 0xFF
    assert said_of(packed, tmp_path / "damaged") == f"its {packing} data is damaged"


def test_seed_3_a_damage_that_hides_the_end_of_the_data_is_named_as_possible(tmp_path: Path) -> None:
    """zlib takes the check sum for more data and wants still more, as it does of a file that is cut off."""
    random = Random(3)
    packed = bytearray(PACKED["gzip"](pcap([random.randbytes(500) for _ in range(200)])))
    packed[int(len(packed) * 0.999)] ^= 0xFF
    assert said_of(packed, tmp_path / "damaged") == EARLY.format("gzip")
