"""From records, sorted by flow and time, to rows of `packets`: the one place where a conversation is understood.

Spark brings the records of a flow together. A task gets them in batches; it gathers whole episodes until they are worth
the arrays that are made of them, finds out what they mean (`packets.py`) and goes on. An episode of very many packets
is in memory as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fairway.capture.columns.datagrams import REASONS
from fairway.core.tables import PACKETS, RECORDS
from fairway.lake.analysis.decoded import Decoded
from fairway.lake.analysis.episodes import Span, are_open, first_of_episodes, numbers_of
from fairway.lake.analysis.packets import Packets, packets_of, table_of
from fairway.lake.arrays import Codes, Mask, Rows, count, masked, mixed, most
from fairway.lake.captures.files import number_of
from fairway.lake.captures.merged import borne_out
from fairway.lake.captures.readings import Readings, Source
from fairway.lake.schemas import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP_ROWS = 1 << 17
"""Episodes are gathered until there are so many rows."""

BATCH_ROWS = 1 << 15
"""Rows are written so many at a time."""

ORDER = ("flow", "at_ns", "file_id", "offset")
_SCHEMA = arrow_schema(PACKETS)
_RECORDS = arrow_schema(RECORDS)


class Capture(NamedTuple):
    """What rows of `packets` say of their file, and what decides whether another file could continue an episode."""

    source: Source
    span: Span


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
    counts: dict[int, Counts] = field(default_factory=dict)
    """By file, what this task has read."""
    protocols: set[str] = field(default_factory=set)
    """The protocols that it has met."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of `packets`."""
        for records in map(self.cut, self.groups(batches)):
            self._count(Rows(records))
            for packets in self.enriched(records):
                self.protocols.update(packets["protocol"].unique().drop_null().to_pylist())
                yield packets

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
        for place, number in enumerate(numbers.tolist()):
            found = Counts(int(rows[place]), int(frames[place]), int(damages[place]))
            self.counts.setdefault(number, Counts()).add(found)

    def groups(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Gather whole episodes. What is returned is held by nobody else: an episode may be very large."""
        waiting: list[pa.Table] = []
        rows = 0
        for batch in batches:
            waiting.append(pa.Table.from_batches([batch]))
            rows += len(batch)
            if rows < self.group_rows:
                continue
            together = pa.concat_tables(waiting)
            # What is looked at is cheap beside what is computed; an episode that fills the group is looked at again
            # with every batch, so the next look waits until there is as much again.
            start = int(np.flatnonzero(first_of_episodes(Rows(together)))[-1])
            waiting, done = [together.slice(start)], [together.slice(0, start)]
            rows = len(waiting[0]) // 2
            del together
            if start:
                yield done.pop().combine_chunks()
        if waiting:
            done = [pa.concat_tables(waiting)]
            waiting.clear()
            yield done.pop().combine_chunks()

    def cut(self, records: pa.Table) -> pa.Table:
        """Return whole episodes with each record as its episode bears it out: cut into datagrams, or as it is."""
        if records["merged_as"].null_count == len(records):
            return records
        numbered = self._numbered(records)[0]
        rows = Readings(numbered, self._sources)

        def recognise(seen: Mask) -> Codes:
            return Decoded(Readings(numbered.filter(pa.array(seen)), self._sources), self.port_map).protocol

        return records.filter(pa.array(borne_out(rows, mixed(rows.records.numbers("episode")), recognise)))

    def understood(self, records: pa.Table) -> tuple[Packets, pa.Array]:
        """Return what is known of whole episodes, and which rows belong to an open one."""
        numbered, first = self._numbered(records)
        spans = {number: capture.span for number, capture in self.captures.items()}
        found = packets_of(Readings(numbered, self._sources), self.port_map)
        return found, pa.array(are_open(Rows(records), first, spans))

    def _numbered(self, records: pa.Table) -> tuple[pa.Table, Mask]:
        """Return records with the number of their episode, and which of them begin one."""
        rows = Rows(records)
        first = first_of_episodes(rows)
        episode = masked(numbers_of(rows, first), rows.numbers("undecoded") != 0, pa.int64())
        return records.append_column("episode", episode), first

    @property
    def _sources(self) -> dict[int, Source]:
        return {number: capture.source for number, capture in self.captures.items()}

    def enriched(self, records: pa.Table) -> Iterator[pa.RecordBatch]:
        """Return rows of `packets` for whole episodes, few at a time: written out, texts are most of a row."""
        made = self._made(records)
        for start in range(0, len(made), BATCH_ROWS):
            some = made.slice(start, BATCH_ROWS)
            columns = [some[field.name].cast(field.type) for field in _SCHEMA]
            yield from pa.table(columns, _SCHEMA).combine_chunks().to_batches()

    def _made(self, records: pa.Table) -> pa.Table:
        found, is_open = self.understood(records)
        kept = {name: found.decoded.rows.array(name) for name in ("episode", "head", "payload_crc")}
        made = table_of(found)
        for name, column in (kept | {"open": is_open}).items():
            made = made.append_column(name, column)
        return made


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
