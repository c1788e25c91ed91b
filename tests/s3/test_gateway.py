"""A gateway whose lake is an object store: its journal is on a disk, and each segment is one PUT."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.gateway.columns import equal
from fairway.gateway.errors import JournalInUse
from fairway.gateway.home import Home
from fairway.store.lakes import Lake
from tests.gateway.world import Crowd, Ledger, Sender, any_ports, gateway, journalled, start


@pytest.mark.parametrize("point", ["seal-synced", "seal-renamed"])
async def test_killed_before_or_behind_the_put_of_a_segment_it_makes_the_same_one(
    point: str, address: str, tmp_path: Path
) -> None:
    lake, home = address, tmp_path
    options = ("--journal", str(home / "gateways"), "--seal-after", "150ms")
    first = await start(lake, any_ports(("mrp",)), *options, environment={"FAIRWAY_CRASH_AT": f"{point}:2"})
    crowd = Crowd(Sender(first.urls[0], "mrp", Ledger()))
    crowd.start()
    assert await first.ended() == -signal.SIGKILL
    async with gateway(lake, first.urls, *options) as second:
        await crowd.more()
        await crowd.end(second, lake)
    assert not journalled(home)
    assert not list((home / "gateways" / "gateway" / "staging" / "gateway-gateway").iterdir())


def test_a_name_belongs_to_one_journal(lake: Lake, tmp_path: Path) -> None:
    one, other = (Home(lake.location.uri, "edge", tmp_path / folder) for folder in ("one", "other"))
    for _ in range(2):
        one.take()
        one.release()
    with pytest.raises(JournalInUse, match=rf"belongs to the journal at \S+:{one.folder}; give this gateway a name"):
        other.take()
    (lake.location / "gateways").remove("edge/owner")
    other.take()
    other.release()


def test_a_segment_that_is_there_is_the_same_or_anothers(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    for compression in ("zstd", "none"):
        pq.write_table(pa.table({"gateway_offset": [1, 2]}), path, compression=compression)
        if compression == "zstd":
            lake.landing.publish(path, "edge/segment")
    assert equal(lake.landing, "edge/segment", path), "the rows count, not how they are written"
    pq.write_table(pa.table({"gateway_offset": [1, 3]}), path)
    assert not equal(lake.landing, "edge/segment", path)
