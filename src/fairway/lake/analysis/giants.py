"""An episode of more records than are held at a time: its chunks lie on disk, and are gone through three times.

    1  all chunks add up the episode's protocol and layout (`verdicts`, `layouts`); its handshakes are kept
    2  in the order of time, sessions and numbers are found (`in_order`); what later chunks must know is carried
    3  in that order again, with all that is known by then, rows of `packets` are made

What a record repeats or acknowledges may lie anywhere in the episode, before it or behind it, but has a number that it
names. So between 2 and 3 records are read number by number, a share of all numbers at a time (`facts`).
A record that has a number of its own and names another is read with both. A share with many records under one
number is gone through in pieces, of which no more is kept than what was first, last, greatest or counted.

Memory is for a chunk, a piece, the numbers of a share, the handshakes, and a few numbers for each session.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.acknowledgements import OF_OTHER, Facts, facts, note_sent, numbers_of
from fairway.lake.analysis.conversations import SHAKEN, answers_of_calls, handshakes_in
from fairway.lake.analysis.decoded import Decoded, Known, Signs, layouts, signs_in
from fairway.lake.analysis.episodes import first_of_episodes
from fairway.lake.analysis.episodes import numbers_of as episodes_of
from fairway.lake.analysis.headers import TURNS, Headers
from fairway.lake.analysis.packets import LAYOUT, Ordered, Packets, as_recognised, in_order
from fairway.lake.arrays import MISSING, Carried, Mask, Rows, begins, masked, mixed
from fairway.lake.captures.merged import staying, telling
from fairway.lake.captures.recognition import Evidence, observed, verdicts


class Decode(Protocol):
    """Reads records, of an episode that is known or not."""

    def __call__(self, records: pa.Table, known: Known | None = None) -> Decoded: ...


SHARES_MAX = min(turn for turn in TURNS.values() if turn > 1)
"""A number on the wire and the same one widened are in one share: shares are what is left of a turn."""


class OnDisk:
    """What lies in a temporary file."""

    def __init__(self) -> None:
        folder = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]  # where Spark keeps its own
        self._file = tempfile.TemporaryFile(prefix="fairway-episode-", dir=folder)  # noqa: SIM115

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


class Chunks(OnDisk):
    """The records of one episode on disk, in the order of time, so many at a time."""

    def __init__(self, beginning: pa.Table, rows: int, size_bytes: int) -> None:
        super().__init__()
        self.rows, self.size_bytes, self.count = rows, size_bytes, 0
        self.ends = beginning.slice(0, 0)
        """The first record, and the last."""
        self.may_be_merged = False
        """Whether a record may hold several datagrams."""
        self._writer = pa.ipc.new_file(self._file, beginning.schema)
        self._waiting = beginning.slice(0, 0)
        self.add(beginning)

    @property
    def episode(self) -> int:
        """The number of the episode."""
        return int(episodes_of(Rows(self.ends), np.array([True, False]))[0])

    def continued(self, records: pa.Table) -> pa.Table:
        """Take what is of this episode of the records that come next, and return the others."""
        first = first_of_episodes(Rows(pa.concat_tables([self.ends.slice(1), records])))
        end = int(np.flatnonzero(np.append(first[1:], True))[0])
        self.add(records.slice(0, end))
        return records.slice(end)

    def add(self, records: pa.Table) -> None:
        """Take more records of it. The rows of one are not parted."""
        if not len(records):
            return
        self.count += len(records)
        first = self.ends if len(self.ends) else records
        self.ends = pa.concat_tables([first.slice(0, 1), records.slice(len(records) - 1)])
        self.may_be_merged |= records["merged_as"].null_count < len(records)
        step = max(1, min(self.rows, self.size_bytes * len(records) // records.nbytes))
        for start in range(0, len(records), step):
            self._waiting = pa.concat_tables([self._waiting, records.slice(start, step)])
            if len(self._waiting) > self.rows or self._waiting.nbytes > self.size_bytes:
                held = Rows(self._waiting)
                end = int(np.flatnonzero(begins(mixed(held.numbers("file_id"), held.numbers("frame"))))[-1])
                self._write(self._waiting.slice(0, end))
                self._waiting = self._waiting.slice(end)

    def _write(self, records: pa.Table) -> None:
        if len(records):
            self._writer.write_table(records.combine_chunks())

    def ended(self) -> Chunks:
        """Return the same, without more to come."""
        self._write(self._waiting)
        self._waiting = self._waiting.slice(0, 0)
        self._writer.close()
        return self

    def __iter__(self) -> Iterator[pa.Table]:
        """Return the chunks, each with a column for the number of the episode."""
        stored = pa.ipc.open_file(self._file)
        for number in range(stored.num_record_batches):
            records = pa.Table.from_batches([stored.get_batch(number)])
            none = Rows(records).numbers("undecoded") != 0
            yield records.append_column("episode", masked(np.full(len(records), self.episode), none, pa.int64()))


Piece = list[tuple[int, int]]
"""Rows that are read together: the first of each stretch, and the one behind its last."""


class Shuffled(OnDisk):
    """Rows of numbers on disk, which are read in other groups than they were written in."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._groups = groups
        self._kind: np.dtype[np.void] | None = None
        self._bounds: list[Integers] = []
        self._rows = 0

    def add(self, columns: Mapping[str, NDArray[Any]], group: Integers) -> None:
        """Write rows, each of which belongs to a group."""
        order = np.argsort(group, kind="stable")
        self._kind = np.dtype([(name, column.dtype) for name, column in columns.items()])
        rows = np.empty(len(order), dtype=self._kind)
        for name, column in columns.items():
            rows[name] = column[order]
        self._file.seek(0, os.SEEK_END)
        self._file.write(rows.tobytes())
        self._bounds.append(self._rows + np.searchsorted(group[order], np.arange(self._groups + 1)))
        self._rows += len(order)

    def pieces(self, group: int, rows: int) -> list[Piece]:
        """Return where the rows of a group lie, about so many in a piece, in the order in which they were written."""
        pieces: list[Piece] = [[]]
        held = 0
        for bounds in self._bounds:
            start, end = (int(bound) for bound in bounds[group : group + 2])
            if held and held + end - start > rows:
                pieces.append([])
                held = 0
            pieces[-1].append((start, end))
            held += end - start
        return pieces

    def read(self, piece: Piece) -> dict[str, NDArray[Any]]:
        """Return the rows of a piece."""
        assert self._kind is not None
        found = []
        for start, end in piece:
            self._file.seek(start * self._kind.itemsize)
            found.append(self._file.read((end - start) * self._kind.itemsize))
        rows = np.frombuffer(b"".join(found), dtype=self._kind)
        return {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}

    def group(self, number: int) -> dict[str, NDArray[Any]]:
        """Return all rows of a group."""
        (piece,) = self.pieces(number, self._rows)
        return self.read(piece)


def cut(chunks: Chunks, decode: Decode) -> Chunks:
    """Return each record as the episode bears it out: cut into datagrams, or as it is."""
    if not chunks.may_be_merged:
        return chunks
    evident = (decode(chunk.filter(pa.array(_telling(decode(chunk)))), None) for chunk in chunks)
    evidence = reduce(Evidence.plus, map(_observed, evident))
    known, told_any = Known(verdicts(evidence)), evidence.sums["all"] > 0
    found = Chunks(chunks.ends.slice(0, 0), chunks.rows, chunks.size_bytes)
    for chunk in chunks:
        decoded = decode(chunk, known)
        stays = staying(decoded.rows, np.where(told_any, decoded.protocol, np.int16(MISSING)))
        found.add(chunk.drop_columns("episode").filter(pa.array(stays)))
    return found.ended()


def _telling(decoded: Decoded) -> Mask:
    return telling(decoded.rows, mixed(decoded.flow))


def _observed(decoded: Decoded) -> Evidence:
    """Return what a chunk adds up to."""
    rows = decoded.rows
    whole = ~rows.missing(rows.unit)
    return observed(rows, whole, np.zeros(np.count_nonzero(whole), np.int64), 1, decoded.forward)


def packets_in(chunks: Chunks, decode: Decode) -> Iterator[Packets]:
    """Find out what an episode says, and return it chunk by chunk."""
    known, calls = _known(chunks, decode)
    carried, starts = Carried(keeps=True), [0]
    shares = min(SHARES_MAX, 1 << (2 * chunks.count // chunks.rows).bit_length())
    with closing(Shuffled(shares)) as shuffled:
        for ordered in _in_order(chunks, decode, known, calls, carried):
            _shuffle(shuffled, ordered.headers, starts[-1], shares)
            starts.append(starts[-1] + len(ordered.sessions.rows))
        found = Shuffled(len(starts) - 1)
        for share in range(shares):
            _find(found, shuffled, shuffled.pieces(share, chunks.rows), np.array(starts[:-1]))
    with closing(found):
        for number, ordered in enumerate(_in_order(chunks, decode, known, calls, carried.again(LAYOUT))):
            yield Packets(*ordered, _facts(found.group(number), starts[number], len(ordered.sessions.rows)))


Calls = tuple[Integers, Integers]
"""The rows of handshakes in the episode, and what calls among them were answered with; -1 for the others."""


def _known(chunks: Chunks, decode: Decode) -> tuple[Known, Calls]:
    """Find out what only the whole episode tells."""
    evidence: Evidence | None = None
    signs: Signs | None = None
    flows, handshakes, rows, start = np.array([chunks.episode]), [], [], 0
    for chunk in chunks:
        decoded = decode(chunk)
        seen, shown = _observed(decoded), signs_in(decoded.rows, flows)
        evidence, signs = evidence.plus(seen) if evidence else seen, signs.plus(shown) if signs else shown
        shaken = np.flatnonzero(handshakes_in(decoded.rows))
        handshakes.append(pa.table([decoded.rows.array(name).take(pa.array(shaken)) for name in SHAKEN], SHAKEN))
        rows.append(start + shaken)
        start += len(chunk)
    assert evidence is not None
    assert signs is not None
    recognised = verdicts(evidence)
    kept = Decoded(Rows(pa.concat_tables(handshakes)), decoded.port_map, Known(recognised))
    known = Known(recognised, layouts(kept.rows, kept.forward, flows, signs))
    return known, (np.concatenate(rows), answers_of_calls(kept))


def _in_order(chunks: Chunks, decode: Decode, known: Known, calls: Calls, carried: Carried) -> Iterator[Ordered]:
    """Go through an episode in the order of time."""
    start = 0
    for chunk in chunks:
        answers = np.full(len(chunk), MISSING, dtype=np.int64)
        first, last = np.searchsorted(calls[0], (start, start + len(chunk)))
        answers[calls[0][first:last] - start] = calls[1][first:last]
        yield in_order(as_recognised(decode(chunk, known)), answers, carried)
        start += len(chunk)


def _shuffle(shuffled: Shuffled, headers: Headers, start: int, shares: int) -> None:
    """Write the headers of records to the shares of the numbers that they have and name."""
    own, other = (number & (shares - 1) for number in numbers_of(headers))
    twice = np.repeat(np.arange(len(own)), np.where(own == other, 1, 2))
    again = ~begins(twice)
    share = np.where(again, other[twice], own[twice])
    flags = {"row": start + twice, "has": ~again, "names": again | (own == other)[twice]}
    shuffled.add({name: column[twice] for name, column in headers._asdict().items()} | flags, share)


def _find(found: Shuffled, shuffled: Shuffled, pieces: Sequence[Piece], starts: Integers) -> None:
    """Write the facts of one share of numbers to the chunks of their records.

    Many records may have one number: all parts of a rup message do, or what a peer sends that has nothing new to
    acknowledge. So there may be several pieces, and what the later ones must know is carried.
    """
    sent, carried = Carried(keeps=True), Carried(keeps=len(pieces) > 1)
    for piece in reversed(pieces):
        note_sent(_headers(shuffled.read(piece)), sent)
    for piece in pieces:
        columns = shuffled.read(piece)
        headers = _headers(columns)
        flags = {"row": columns["row"], "has": headers.has, "names": headers.names}
        chunk = np.searchsorted(starts, columns["row"], side="right") - 1
        found.add(flags | facts(headers, sent, carried)._asdict(), chunk)


def _headers(columns: Mapping[str, NDArray[Any]]) -> Headers:
    return Headers(**{name: columns[name] for name in Headers._fields})


def _facts(found: dict[str, NDArray[Any]], start: int, count: int) -> Facts:
    """Return the facts of the records of a chunk."""
    rows, whose = found["row"] - start, {True: found["names"], False: found["has"]}

    def column(name: str) -> NDArray[Any]:
        values, which = np.empty(count, dtype=found[name].dtype), whose[name in OF_OTHER]
        values[rows[which]] = found[name][which]
        return values

    return Facts(*map(column, Facts._fields))
