"""The stream source `fairway.landing`: offsets per gateway, an error on a gap, Arrow all the way.

    spark.readStream.format("fairway.landing").option("path", LAKE/landing).load()

It begins where the option `positions` says, a JSON object with the next offset of each gateway. Spark's own file source
would do harm here: it skips old files silently, and a file that was removed before a replay is an empty batch. This one
knows what each batch must hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fairway.core.tables import SEGMENT
from fairway.lake.landing.segments import DamagedLanding, Segment, ends, groups, newest
from fairway.lake.schemas import arrow_schema, spark_schema
from fairway.store.locations import Location, location_of
from fairway.store.parquet import batches

NAME = "fairway.landing"

BATCH_BYTES_MAX = 256 << 20
"""What one micro-batch takes from `landing/` at the most; a backlog becomes several batches."""

_SCHEMA = arrow_schema(SEGMENT)


@dataclass
class SegmentGroup(InputPartition):
    """What one task reads."""

    segments: Sequence[Segment]


class LandingSource(DataSource):
    """Registers the source under its name."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(SEGMENT)

    def streamReader(self, schema: StructType) -> LandingStreamReader:  # noqa: N802  # Spark's name
        return LandingStreamReader(self.options)


class LandingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark how far the gateways are, and reads what lies between two positions."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._landing = location_of(options["path"])
        self._start = {name: int(position) for name, position in json.loads(options.get("positions", "{}")).items()}
        self._bytes_max = int(options.get("bytesmax", BATCH_BYTES_MAX))
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return self._start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now: a single pass ends with it."""
        self._target = ends(self._landing)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return newest(self._landing, start, target=self._target, bytes_max=bytes_max)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [SegmentGroup(group) for group in groups(self._landing, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentGroup)
        for segment in partition.segments:
            yield from read_segment(self._landing, segment)


def read_segment(landing: Location, segment: Segment) -> Iterator[pa.RecordBatch]:
    """Return the rows of a segment, and check that they are those that its name promises.

    A column that an earlier release did not write is null.
    """
    path, position = f"{landing}/{segment.name}", segment.first
    try:
        for batch in batches(landing, segment.name, _SCHEMA):
            position = _checked(batch, segment, path, position)
            yield batch
    except FileNotFoundError as error:
        raise DamagedLanding(f"{path} was removed before it had landed: put it back from a copy.") from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedLanding(f"{path} cannot be read ({error}): put it back from a copy.") from error
    if position != segment.last + 1:
        raise DamagedLanding(f"{path} ends at offset {position - 1}: put it back from a copy.")


def _checked(batch: pa.RecordBatch, segment: Segment, path: str, position: int) -> int:
    """Return the position behind the batch, whose offsets go on from `position` without a gap."""
    offsets = batch.column("gateway_offset").to_numpy()
    names = pc.unique(batch.column("gateway")).to_pylist()
    if names != [segment.gateway] or (offsets != np.arange(position, position + len(offsets))).any():
        raise DamagedLanding(
            f"{path} holds other messages than its name says, from offset {position} on: put it back from a copy."
        )
    return position + len(offsets)
