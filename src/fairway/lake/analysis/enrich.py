"""From records, sorted by flow and time, to rows of `packets`: the one module that understands conversations.

Spark brings the records of a flow together. A task gets them in batches; it gathers whole episodes until they are worth
the arrays that are made of them, finds out what they mean (`packets.py`) and goes on. An episode of more records than
that is put on disk, and understood in chunks (`giants.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fairway.capture.columns.datagrams import REASONS
from fairway.core.tables import PACKETS, RECORDS
from fairway.lake.analysis.decoded import Decoded, Known
from fairway.lake.analysis.episodes import are_open, first_of_episodes, numbers_of
from fairway.lake.analysis.giants import Chunks, cut, packets_in
from fairway.lake.analysis.packets import Packets, packets_of, table_of
from fairway.lake.arrays import Codes, Mask, Rows, count, masked, mixed, most
from fairway.lake.captures.files import Capture, number_of
from fairway.lake.captures.merged import borne_out
from fairway.lake.captures.readings import Readings
from fairway.lake.schemas import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP_ROWS = 1 << 17
"""Episodes are gathered until there are so many rows; of one with more, so many are in memory at a time."""

GROUP_BYTES = 48 << 20
"""Or so many bytes: rows whose bodies are kept may be large. What is made of a byte takes about ten for a moment."""

BATCH_ROWS = 1 << 15
"""Rows are written so many at a time."""

ORDER = ("flow", "at_ns", "file_id", "offset")
_SCHEMA = arrow_schema(PACKETS)
_RECORDS = arrow_schema(RECORDS)


@dataclass
class Counts:
    """What was read of a file."""

    rows: int = 0
    records: int = 0
    damages: int = 0

    def add(self, other: Counts) -> None:
        """Take in what another task has read of the same file; records are numbered."""
        self.rows, self.damages = self.rows + other.rows, self.damages + other.damages
        self.records = max(self.records, other.records)


@dataclass(frozen=True)
class Enrich:
    """What `mapInArrow` runs: batches of sorted records in, batches of packets out."""

    captures: Mapping[int, Capture]
    port_map: Mapping[int, str]
    group_rows: int = GROUP_ROWS
    group_bytes: int = GROUP_BYTES
    counts: dict[int, Counts] = field(default_factory=dict)
    """By file, what this task has read."""
    protocols: set[str] = field(default_factory=set)
    """The protocols that it has met."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of `packets`."""
        for group in self.groups(batches):
            found = self._of_giant(group) if isinstance(group, Chunks) else self._of_episodes(group)
            for packets, is_open in found:
                yield from self.enriched(packets, is_open)

    def notes(self) -> str:
        """Return what was counted and met."""
        counts = {number: asdict(counts) for number, counts in self.counts.items()}
        return json.dumps({"counts": counts, "protocols": sorted(self.protocols)})

    @staticmethod
    def noted(notes: Iterable[str]) -> tuple[dict[int, Counts], set[str]]:
        """Return what all tasks have counted, by file, and which protocols they have met."""
        counts: dict[int, Counts] = {}
        protocols: set[str] = set()
        for note in map(json.loads, notes):
            protocols.update(note["protocols"])
            for number, one in note["counts"].items():
                counts.setdefault(int(number), Counts()).add(Counts(**one))
        return counts, protocols

    def _count(self, records: Rows) -> None:
        numbers, file = np.unique(records.numbers("file_id"), return_inverse=True)
        rows = np.bincount(file, minlength=len(numbers))
        damages = count(file, records.numbers("undecoded") >= len(REASONS), len(numbers))
        frames = most(file, records.numbers("frame"), len(numbers), 0)
        for index, number in enumerate(numbers.tolist()):
            found = Counts(int(rows[index]), int(frames[index]), int(damages[index]))
            self.counts.setdefault(number, Counts()).add(found)

    def groups(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table | Chunks]:
        """Gather whole episodes; one of too many records is gathered on disk."""
        waiting: list[pa.Table] = []
        giant: Chunks | None = None
        for batch in batches:
            records = pa.Table.from_batches([batch])
            if giant is not None:
                records = giant.continued(records)
                if not len(records):
                    continue
                yield giant.ended()
                giant = None
            waiting.append(records)
            if not self._are_enough(waiting):
                continue
            together = pa.concat_tables(waiting)
            start = int(np.flatnonzero(first_of_episodes(Rows(together)))[-1])
            if start:
                yield together.slice(0, start).combine_chunks()
            waiting = [together.slice(start)]
            if self._are_enough(waiting):
                giant = Chunks(waiting.pop(), self.group_rows, self.group_bytes)
        if giant is not None:
            yield giant.ended()
        elif waiting:
            yield pa.concat_tables(waiting).combine_chunks()

    def _are_enough(self, records: list[pa.Table]) -> bool:
        return sum(map(len, records)) > self.group_rows or sum(one.nbytes for one in records) > self.group_bytes

    def _of_episodes(self, records: pa.Table) -> Iterator[tuple[Packets, Mask]]:
        """Return what is known of whole episodes, and which rows belong to an open one."""
        records = self.cut(records)
        numbered, first = self._numbered(records)
        yield packets_of(self._decoded(numbered)), are_open(Rows(records), first, self.captures)

    def _of_giant(self, chunks: Chunks) -> Iterator[tuple[Packets, Mask]]:
        """Return the same of one episode, chunk by chunk."""
        is_open = are_open(Rows(chunks.ends), np.array([True, False]), self.captures)[0]
        with closing(chunks), closing(cut(chunks, self._decoded)) as whole:
            for packets in packets_in(whole, self._decoded):
                yield packets, is_open & ~packets.decoded.rows.missing("episode")

    def cut(self, records: pa.Table) -> pa.Table:
        """Return whole episodes with each record as its episode bears it out: cut into datagrams, or as it is."""
        if records["merged_as"].null_count == len(records):
            return records
        numbered = self._numbered(records)[0]
        episode = mixed(Rows(numbered).numbers("episode"))

        def recognise(seen: Mask) -> Codes:
            return self._decoded(numbered.filter(pa.array(seen))).protocol

        return records.filter(pa.array(borne_out(self._decoded(numbered).rows, episode, recognise)))

    def _decoded(self, records: pa.Table, known: Known | None = None) -> Decoded:
        return Decoded(Readings(records, self.captures), self.port_map, known)

    def _numbered(self, records: pa.Table) -> tuple[pa.Table, Mask]:
        """Return records with the number of their episode, and which of them begin one."""
        rows = Rows(records)
        first = first_of_episodes(rows)
        episode = masked(numbers_of(rows, first), rows.numbers("undecoded") != 0, pa.int64())
        return records.append_column("episode", episode), first

    def enriched(self, packets: Packets, is_open: Mask) -> Iterator[pa.RecordBatch]:
        """Return rows of `packets`, few at a time: written out, texts are most of a row."""
        rows = packets.decoded.rows
        self._count(Rows(rows.table))
        made = table_of(packets)
        for name in ("episode", "head", "payload_crc"):
            made = made.append_column(name, rows.array(name))
        made = made.append_column("open", pa.array(is_open))
        self.protocols.update(made["protocol"].unique().drop_null().to_pylist())
        for start in range(0, len(made), BATCH_ROWS):
            some = made.slice(start, BATCH_ROWS)
            columns = [some[field.name].cast(field.type) for field in _SCHEMA]
            yield from pa.table(columns, _SCHEMA).combine_chunks().to_batches()


def sorted_by_flow(records: DataFrame) -> DataFrame:
    """Bring the records of each flow together, in the order of time."""
    return records.repartition("flow").sortWithinPartitions(*ORDER)


def records_of(packets: DataFrame) -> DataFrame:
    """Return the records that packets were made from; those without a datagram are left out."""
    return packets.where("flow IS NOT NULL").mapInArrow(as_records, spark_schema(RECORDS))


def as_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the records of stored packets that hold a datagram."""
    for batch in batches:
        made = {
            "file_id": _mapped(batch.column("file_id"), number_of, pa.int64()),
            "source": _mapped(batch.column("source"), _packed, pa.binary()),
            "destination": _mapped(batch.column("destination"), _packed, pa.binary()),
            "undecoded": pa.array(np.zeros(len(batch), dtype=np.int32)),
            "merged_as": pa.nulls(len(batch), pa.int32()),
        }
        arrays = [made[name] if name in made else batch.column(name) for name in RECORDS.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=_RECORDS)


def _mapped(texts: pa.Array, function: Callable[[str], object], kind: pa.DataType) -> pa.Array:
    """Apply a function to each of the few different texts of a column."""
    folded = texts.dictionary_encode()
    return pa.array([function(text) for text in folded.dictionary.to_pylist()], type=kind).take(folded.indices)


def _packed(address: str) -> bytes:
    return ip_address(address).packed
