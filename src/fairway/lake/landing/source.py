"""The stream source `fairway.landing`: offsets per gateway, an error on a gap, Arrow all the way.

    spark.readStream.format("fairway.landing").option("path", LAKE/landing).load()

Spark's own file source would do harm here: it skips old files silently, and a file that was removed before a replay
gives an empty batch. This one knows what each batch must hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fairway.core.tables import SEGMENT
from fairway.lake.landing.segments import DamagedLanding, Segment, ends, groups, newest
from fairway.lake.schemas import arrow_schema, spark_schema

NAME = "fairway.landing"

BATCH_BYTES_MAX = 256 << 20
"""What one micro-batch takes from `landing/` at the most; a backlog becomes several batches."""

_SCHEMA = arrow_schema(SEGMENT)

ARROW_ROWS_MAX = 16_384
ARROW_BYTES = 8 << 20
"""What one Arrow batch holds, whichever comes first; bodies may be large."""


@dataclass
class SegmentGroup(InputPartition):
    """What one task reads."""

    segments: Sequence[Segment]


class LandingSource(DataSource):
    """Registers the source under its name."""

    @classmethod
    def name(cls) -> str:
        """Gives what stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Gives the columns of a segment."""
        return spark_schema(SEGMENT)

    def streamReader(self, schema: StructType) -> LandingStreamReader:  # noqa: N802  # Spark's name
        """Gives the reader of a stream."""
        return LandingStreamReader(self.options)


class LandingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark how far the gateways are, and reads what lies between two positions."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._landing = Path(options["path"])
        self._bytes_max = int(options.get("bytesmax", BATCH_BYTES_MAX))
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Begins before every gateway's first message."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Bounds a batch."""
        return ReadMaxBytes(self._bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remembers what is there now: a single pass ends with it."""
        self._target = ends(self._landing)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Gives how far the next batch goes."""
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return newest(self._landing, start, target=self._target, bytes_max=bytes_max)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cuts a batch into tasks."""
        return [SegmentGroup(group) for group in groups(self._landing, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the segments of one task."""
        assert isinstance(partition, SegmentGroup)
        for segment in partition.segments:
            yield from read_segment(segment)


def read_segment(segment: Segment) -> Iterator[pa.RecordBatch]:
    """Gives the rows of a segment, and checks that they are those that its name promises."""
    position = segment.first
    try:
        with pq.ParquetFile(segment.path) as file:
            for batch in file.iter_batches(_rows_at_once(file.metadata), columns=list(SEGMENT.names)):
                position = _checked(batch, segment, position)
                yield pa.Table.from_batches([batch]).cast(_SCHEMA).combine_chunks().to_batches()[0]
    except FileNotFoundError as error:
        raise DamagedLanding(f"{segment.path} was removed before it had landed: put it back from a copy.") from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedLanding(f"{segment.path} cannot be read ({error}): put it back from a copy.") from error
    if position != segment.last + 1:
        raise DamagedLanding(f"{segment.path} ends at offset {position - 1}: put it back from a copy.")


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    rows = int(metadata.num_rows)
    size_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    return max(1, min(ARROW_ROWS_MAX, ARROW_BYTES * rows // max(1, int(size_bytes))))


def _checked(batch: pa.RecordBatch, segment: Segment, position: int) -> int:
    """Gives the position behind the batch, whose offsets go on from `position` without a gap."""
    offsets = batch.column("offset").to_numpy()
    names = pc.unique(batch.column("gateway")).to_pylist()
    if names != [segment.gateway] or (offsets != np.arange(position, position + len(offsets))).any():
        raise DamagedLanding(
            f"{segment.path} holds other messages than its name says, from offset {position} on: "
            "put it back from a copy."
        )
    return position + len(offsets)
