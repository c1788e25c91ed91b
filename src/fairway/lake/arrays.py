"""Rows of a table as arrays of numbers, and what is computed over groups of them: no step loops over rows.

A text that repeats becomes the index of its name in a tuple; -1 stands for null and for any other name. Groups are
sorted together once, in the order of time, and then a running value is one pass over an array; what it has reached is
carried from one chunk of rows to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.core.columns import Integers

Mask = NDArray[np.bool_]
Codes = NDArray[np.int16]
Words = NDArray[np.uint64]

MISSING = -1
NEVER = np.iinfo(np.int64).max
"""No number of a record."""


class Rows:
    """The columns of an Arrow table, each read once."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._numbers: dict[str, Integers] = {}
        self._missing: dict[str, Mask] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def unit(self) -> str:
        """The column of what is judged as a whole: the episode, and without such a column the flow."""
        return "episode" if "episode" in self.table.column_names else "flow"

    def array(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        column = self.table.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        return column.combine_chunks()

    def numbers(self, name: str) -> Integers:
        """Return a column of numbers; 0 for null."""
        if name in self._numbers:
            return self._numbers[name]
        array = self.array(name)
        filled = array.fill_null(0) if array.null_count else array
        numbers: Integers = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return self._numbers.setdefault(name, numbers)

    def missing(self, name: str) -> Mask:
        """Return where a column is null."""
        if name in self._missing:
            return self._missing[name]
        array = self.array(name)
        nulls: Mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else np.zeros(len(self), bool)
        return self._missing.setdefault(name, nulls)

    def keep(self, protocols: Collection[str]) -> None:
        """Say that the rows are of these protocols only, so that other readings of them may be forgotten."""

    def flags(self, name: str) -> Mask:
        """Return where a column is true."""
        flags: Mask = self.array(name).fill_null(False).to_numpy(zero_copy_only=False)
        return flags

    def folded(self, name: str) -> pa.DictionaryArray:
        """Return a column of texts as a dictionary."""
        array = self.array(name)
        return array if isinstance(array, pa.DictionaryArray) else array.dictionary_encode()

    def texts(self, name: str) -> tuple[Integers, list[str]]:
        """Return the index of each row's text, and the texts; -1 for null."""
        array = self.folded(name)
        indices = array.indices
        filled = indices.fill_null(MISSING) if indices.null_count else indices
        return filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), array.dictionary.to_pylist()

    def codes(self, name: str, names: Sequence[str]) -> Codes:
        """Return the index of each row's text in `names`."""
        indices, texts = self.texts(name)
        codes_of = np.array([names.index(text) if text in names else MISSING for text in texts] + [MISSING], np.int16)
        codes: Codes = codes_of[indices]
        return codes


def masked(values: NDArray[np.generic], null: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array with null where the mask is true."""
    return pa.array(values, type=kind, mask=null if null is not None and null.any() else None)


def numbers(values: NDArray[np.generic], null: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return whole numbers as an Arrow array of 32 or 64 bits."""
    return masked(values.astype(np.int32 if kind == pa.int32() else np.int64, copy=False), null, kind)


def named(codes: NDArray[np.signedinteger], names: Sequence[str]) -> pa.Array:
    """Return the texts of codes, as a dictionary."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0 if (codes < 0).any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), type=pa.string()), safe=False)


def mixed(*parts: NDArray[np.generic]) -> Words:
    """Make one word of 64 bits from several columns; equal for equal rows, and else only by collision."""
    word = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        bits = part.view(np.uint64) if part.dtype.itemsize == 8 else part.astype(np.int64).view(np.uint64)
        word = scrambled(word ^ bits)
    return word


def scrambled(words: Words) -> Words:
    """Spread 64 bits over 64 bits (the finalizer of splitmix64), so that neighbours are far apart."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def word_of(text: str) -> int:
    """Return a text's fingerprint, the same on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def hexadecimal(words: Words) -> pa.Array:
    """Return words as 16 digits each."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    octets = words.astype(">u8").view(np.uint8).reshape(-1, 8)
    text = np.empty((len(words), 16), dtype=np.uint8)
    text[:, 0::2], text[:, 1::2] = digits[octets >> 4], digits[octets & 15]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(words), [None, pa.py_buffer(text)]).cast(pa.string())


def together(keys: NDArray[np.generic]) -> Integers:
    """Return the order that brings equal keys together and else changes nothing."""
    if keys.dtype.itemsize == 8 and len(keys) and int(keys.min()) >= 0 and int(keys.max()) < 1 << 16:
        keys = keys.astype(np.uint16)  # sorted digit by digit, several times as fast
    return np.argsort(keys, kind="stable")


def begins(keys: NDArray[np.generic]) -> Mask:
    """Return which rows have another key than the row before; equal keys lie together."""
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def start_of(first: Mask) -> Integers:
    """Return for each row where its group begins."""
    return np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))


def last_before(wanted: Mask, starts: Integers) -> Integers:
    """Return for each row the index of the last wanted one before it in its group, or -1."""
    rows = np.where(wanted, np.arange(len(wanted)), MISSING)
    before = np.empty_like(rows)
    before[:1] = MISSING
    np.maximum.accumulate(rows[:-1], out=before[1:])
    return np.where(before >= starts, before, MISSING)


def sum_until(values: Integers, starts: Integers) -> Integers:
    """Return for each row the sum of its group up to it."""
    sums = np.cumsum(values)
    return sums - (sums[starts] - values[starts])


def most_before(values: Integers, wanted: Mask, first: Mask) -> Integers:
    """Return for each row the greatest wanted value before it in its group; -1 if there is none, or none above -1."""
    group = np.cumsum(first) << np.int64(40)
    levels = group + np.where(wanted, np.clip(values, MISSING, (1 << 40) - 2), MISSING)
    reached = np.maximum.accumulate(levels)
    before = np.empty_like(reached)
    before[:1] = MISSING
    before[1:] = reached[:-1]
    found: Integers = np.maximum(before - group, MISSING)
    return found


def least(groups: Integers, values: Integers, count: int, otherwise: int) -> Integers:
    """Return the least value of each group."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, groups, values)
    found[found == np.iinfo(np.int64).max] = otherwise
    return found


def most(groups: Integers, values: Integers, count: int, otherwise: int) -> Integers:
    """Return the greatest value of each group."""
    found = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(found, groups, values)
    found[found == np.iinfo(np.int64).min] = otherwise
    return found


def count(groups: Integers, counted: Mask, size: int) -> Integers:
    """Return how many of each group count."""
    return np.bincount(groups[counted], minlength=size)


_NOTHING = np.zeros(0, np.uint64), np.zeros(0, np.int64)


class Carried:
    """Numbers by name and key, for the next chunk; for rows that are all there is, nothing is kept.

    An episode that is too large for memory is gone through in chunks. What a later chunk must know of those before are
    a few numbers for each session: the last of a counter, a sum, the greatest so far.
    """

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps
        self._known: dict[str, tuple[Words, Integers]] = {}

    def get(self, name: str, keys: Words, otherwise: int) -> Integers:
        """Return what was put under the keys."""
        words, numbers = self._known.get(name, _NOTHING)
        if not len(words):
            return np.full(len(keys), otherwise, dtype=np.int64)
        at = np.minimum(np.searchsorted(words, keys), len(words) - 1)
        return np.where(words[at] == keys, numbers[at], otherwise)

    def put(self, name: str, keys: Words, numbers: Integers) -> None:
        """Replace what was put under the keys, no two of which are equal."""
        if not self.keeps:
            return
        words, known = self._known.get(name, _NOTHING)
        order = np.argsort(keys)
        keys, numbers = keys[order], numbers[order]
        at = np.searchsorted(words, keys)
        new = at == np.searchsorted(words, keys, side="right")
        known[at[~new]] = numbers[~new]
        self._known[name] = np.insert(words, at[new], keys[new]), np.insert(known, at[new], numbers[new])

    def again(self, name: str) -> Carried:
        """Return what a second pass begins with: only what is known under this name by now."""
        second = Carried(keeps=self.keeps)
        second._known = {name: self._known[name]} if name in self._known else {}
        return second


class Runs:
    """Rows that lie session by session, in the order of time: what each has before it in its session."""

    def __init__(self, sessions: Words, first: Mask, carried: Carried) -> None:
        """`first` are the rows with which a session begins or goes on, `sessions` the words of these."""
        self._sessions, self._first, self._carried = sessions, first, carried
        self._starts, self._run = start_of(first), np.cumsum(first) - 1
        self._openers = np.flatnonzero(first)
        self._closers = np.append(self._openers[1:], len(first))[: len(self._openers)] - 1

    @classmethod
    def of(cls, keys: Words, carried: Carried) -> Runs:
        """Return runs of rows whose equal keys lie together."""
        first = begins(keys)
        return cls(keys[first], first, carried)

    def first(self, name: str, values: NDArray[np.signedinteger]) -> Integers:
        """Return the first value of each row's run."""
        before = self._carried.get(name, self._sessions, NEVER)
        found: Integers = np.where(before == NEVER, values[self._openers], before)
        self._carried.put(name, self._sessions, found)
        of_rows: Integers = found[self._run]
        return of_rows

    def last(self, name: str, values: Integers, wanted: Mask) -> Integers:
        """Return the wanted value last before each row; -1 if there is none."""
        before = self._carried.get(name, self._sessions, MISSING)
        row = last_before(wanted, self._starts)
        found = np.where(row == MISSING, before[self._run], values[row])
        self._carried.put(name, self._sessions, np.where(wanted, values, found)[self._closers])
        return found

    def most(self, name: str, values: Integers, wanted: Mask) -> Integers:
        """Return the greatest wanted value before each row; -1 if there is none."""
        before = self._carried.get(name, self._sessions, MISSING)
        found: Integers = np.maximum(most_before(values, wanted, self._first), before[self._run])
        self._carried.put(name, self._sessions, np.where(wanted, np.maximum(values, found), found)[self._closers])
        return found

    def total(self, name: str, values: Integers) -> Integers:
        """Return the sum of values up to each row."""
        before = self._carried.get(name, self._sessions, 0)
        found: Integers = sum_until(values, self._starts) + before[self._run]
        self._carried.put(name, self._sessions, found[self._closers])
        return found
