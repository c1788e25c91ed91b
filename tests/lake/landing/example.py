"""A small lake for the page of messages: three devices, one of which nobody has entered in the table of devices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fairway.core.layout import LANDING, segment_name
from fairway.core.tables import SEGMENT
from fairway.lake.landing.stream import Stream, StreamOptions
from fairway.lake.landing.typed import parse_specs
from fairway.lake.schemas import arrow_schema
from fairway.store.lakes import Lake

SCHEMA = "readings=sensor STRING NOT NULL, celsius DOUBLE"


def land_example(spark: SparkSession, lake: Path) -> None:
    """Make a lake with a few messages of three devices, landed by the stream, and beside it the table `devices`."""
    opened, rows = Lake(lake), []
    for offset in range(12):
        peer = ("192.0.2.7", "192.0.2.8", "2001:db8::1")[offset % 3]
        body = f'{{"sensor": "s{offset % 3}", "celsius": {15 + offset}.5}}' if offset % 5 else "hello"
        received = datetime(2026, 3, 1, 22, tzinfo=UTC) + timedelta(minutes=20 * offset)
        kinds = ("mrp", 8192, peer, 50_000 + offset % 3, None, 7, str(offset), "message", True)
        rows.append(("harbour", offset, *kinds, received, body.encode()))
    segment = pa.table([list(column) for column in zip(*rows, strict=True)], schema=arrow_schema(SEGMENT))
    (lake / LANDING / "harbour").mkdir()
    pq.write_table(segment, lake / LANDING / "harbour" / segment_name(0, len(rows) - 1))
    options = StreamOptions(available_now=True, specs=parse_specs([SCHEMA], []))
    Stream(opened, options, lambda _: None).run(lambda: spark, Event())
    devices = {"peer": ["192.0.2.7", "2001:db8::1"], "site": ["north pier", "south pier"], "model": ["A", "B"]}
    write_deltalake(str(lake.parent / "devices"), pa.table(devices))
