"""One pass of the landing stream in this process, with the session that all tests share."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from fairway.core.tables import PROTOCOLS
from fairway.lake.landing.stream import Happening, Stream, StreamOptions
from fairway.lake.landing.typed import parse_specs
from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway, message_body
from tests.lake.landing.reading import READERS, Read

DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
KEEP_S = 7 * 86_400.0


def land(
    spark: SparkSession,
    lake: Path,
    *,
    schemas: tuple[str, ...] = (),
    routes: tuple[str, ...] = (),
    keep_s: float = KEEP_S,
    happened: list[Happening] | None = None,
) -> list[Happening]:
    """Land what is there, and return what happened; also in `happened`, for a caller that expects a failure."""
    happened = [] if happened is None else happened
    options = StreamOptions(available_now=True, keep_s=keep_s, specs=parse_specs(schemas, routes))
    Stream(Lake(lake), options, happened.append).run(lambda: spark, Event())
    return happened


def expected(gateway: FakeGateway, days: int = 1, end: int | None = None) -> list[Read]:
    """Return the rows that the table must hold of a gateway, in the order of their keys."""
    offsets = range(gateway.next if end is None else end)
    return [
        Read(gateway.name, offset, PROTOCOLS[offset % 4], DAYS[offset % days], message_body(gateway.name, offset))
        for offset in offsets
    ]


def messages(lake: Path) -> list[Read]:
    """Read the table with every reader; they must agree."""
    found = [read(lake / "tables" / "messages") for read in READERS]
    assert all(one == found[0] for one in found)
    return found[0]
