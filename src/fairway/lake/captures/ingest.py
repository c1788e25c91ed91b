"""Captures into the lake, each once: `captures/FILE_ID/` holds a file's records, and never changes.

Tasks decode parts of files and write them themselves: rows that went through the JVM would cost more than twice as
much. They write below `staging/`; a file's folder gets its name in one step when all its parts are there. So a folder
is complete or missing, and a run that was stopped leaves nothing that a reader sees.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fairway.capture.columns.records import TROUBLES
from fairway.core.columns import Integers
from fairway.core.errors import DamagedCapture, FairwayError
from fairway.core.tables import DATAGRAMS
from fairway.lake.analysis.exchange import exchange_folder, fresh_staging, locked
from fairway.lake.captures import slices
from fairway.lake.captures.buckets import BUCKETS, buckets_of_batch, slices_for
from fairway.lake.captures.files import CaptureFile, identity, listed, seen
from fairway.lake.captures.jobs import each
from fairway.lake.captures.parts import PART_BYTES, Part, batches
from fairway.lake.captures.planning import Named, planned
from fairway.lake.captures.rows import UNDECODED, Batch, arrow_batch
from fairway.lake.captures.slices import SUFFIX
from fairway.store.lakes import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ABOUT = "_file.json"
"""Beside a file's rows: what it was called and how many records it held."""
STAGING = "captures"
FORM = 1
"""How records are kept; a Fairway of before kept them otherwise."""
WAITING_ROWS = 1 << 18
"""So many records are gathered before they are written."""

HERE_BYTES_MAX = 4 << 20
"""Files that are together no larger are read without Spark's help."""


@dataclass(frozen=True, slots=True)
class About:
    """What is kept of a file beside its rows."""

    file_id: str
    file: str
    size_bytes: int
    rows: int
    """Records and damaged stretches."""
    payload: bool
    undecoded: dict[str, int]
    """Rows without a datagram, by reason."""
    problems: list[str]
    """What was wrong with the file, though something could be read."""
    buckets: int = 0
    """Into how many buckets the records were cut; 0 if they were not."""
    touched: list[int] = field(default_factory=list)
    """The buckets that have records of the file."""
    form: int = FORM


class OtherForm(FairwayError):
    """The lake's captures are kept in a way that this Fairway does not read."""


class _Wish(NamedTuple):
    """How records are kept."""

    payload: bool
    buckets: int


@dataclass(frozen=True, slots=True)
class Ingestion:
    """What became of the files that were given."""

    added: list[About] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Paths of files whose content was there before."""
    problems: list[str] = field(default_factory=list)
    """A sentence for every file that could not be read, or not to its end."""


def ingest(
    spark: SparkSession,
    files: Iterable[str | os.PathLike[str]],
    lake: Lake | Path | str,
    *,
    payload: bool = False,
    part_bytes: int = PART_BYTES,
    buckets: int = BUCKETS,
) -> Ingestion:
    """Reads each file whose content is not in the lake yet into `captures/`; names may be globs and folders."""
    lake = lake if isinstance(lake, Lake) else Lake(lake)
    with locked(lake, "captures", "fairway analyze"):
        known(lake)  # refuses captures of another form before any is added
        staging = fresh_staging(lake, STAGING)
        outcome = Ingestion()
        named = list(_new(listed(os.fspath(name) for name in files), lake, payload, outcome))
        parts = planned(spark, named, part_bytes)
        answers = _all_written(spark, _numbered(parts, staging), _Wish(payload, buckets))
        _published(lake, staging, named, parts, answers, outcome, _Wish(payload, buckets))
        shutil.rmtree(staging, ignore_errors=True)
    return outcome


def capture_files(lake: Lake, file_ids: Iterable[str]) -> list[str]:
    """Gives the files that hold the records of some captures, always in the same order."""
    return [str(file) for name in sorted(file_ids) for file in sorted((lake.captures / name).glob(f"*{SUFFIX}"))]


def known(lake: Lake | Path | str) -> list[About]:
    """Gives what is kept of every file in the lake, by identity."""
    lake = lake if isinstance(lake, Lake) else Lake(lake, create=False)
    folders = sorted(lake.captures.iterdir()) if lake.captures.exists() else []
    return [about for folder in folders if (about := _about(folder)) is not None]


def _about(folder: Path) -> About | None:
    try:
        stored = json.loads((folder / ABOUT).read_text())
    except FileNotFoundError:
        return None
    if stored.get("form") != FORM:
        raise OtherForm(f"{folder} was kept by another version of Fairway: analyze the captures into a new lake.")
    names = {field.name for field in fields(About)}  # another Fairway may have kept more
    return About(**{name: value for name, value in stored.items() if name in names})


def _new(paths: Sequence[str], lake: Lake, payload: bool, outcome: Ingestion) -> Iterator[Named]:
    """Gives the files that must be read, and notes the others."""
    taken: set[str] = set()
    for path in paths:
        try:
            file = seen(path)
            file_id = identity(file)
        except DamagedCapture as error:
            outcome.problems.append(str(error))
            continue
        there = _about(lake.captures / file_id)
        if file_id in taken or (there is not None and there.payload >= payload):
            outcome.known.append(path)
            continue
        taken.add(file_id)
        yield file, file_id


def _numbered(parts: Sequence[Part], staging: Path) -> list[tuple[Part, str]]:
    """Gives each part the path of the file that its task writes."""
    targets: list[tuple[Part, str]] = []
    counts: Counter[str] = Counter()
    for part in parts:
        targets.append((part, str(staging / part.file_id / f"part-{counts[part.file_id]:05}{SUFFIX}")))
        counts[part.file_id] += 1
    return targets


def _all_written(spark: SparkSession, items: list[tuple[Part, str]], wish: _Wish) -> list[dict[str, Any]]:
    """Decodes parts in tasks; small files are decoded here, before a task would have started."""
    if sum(part.file.size_bytes for part, _ in items) <= HERE_BYTES_MAX:
        return [_written(wish, item) for item in items]
    return each(spark, items, partial(_written, wish))


def _written(wish: _Wish, item: tuple[Part, str]) -> dict[str, Any]:
    """Decodes one part into one file. A task that runs twice writes the same file twice."""
    part, target = item
    writer = _Writer(Path(target), wish)
    problems: list[str] = []
    try:
        for batch in batches(part, problems):
            writer.add(batch)
        writer.close()
    except DamagedCapture as error:
        problems.append(str(error))
    except OSError as error:
        reason = error.strerror or str(error)
        return {"refused": f"{part.file.path} was not taken ({reason}): make room on the lake's disk, then try again."}
    undecoded = {UNDECODED[reason]: count for reason, count in sorted(writer.undecoded.items()) if reason and count}
    if not problems and not undecoded.keys().isdisjoint(TROUBLES):
        problems.append(f"{part.file.path} is damaged or ends inside a record: what could be read is in the tables.")
    return {"rows": writer.rows, "undecoded": undecoded, "touched": sorted(writer.touched), "problems": problems}


class _Writer:
    """Gathers batches and writes them in slices."""

    def __init__(self, target: Path, wish: _Wish) -> None:
        self.rows = 0
        self.undecoded: Counter[int] = Counter()
        self.touched: set[int] = set()
        self._wish = wish
        self._slices = slices_for(wish.buckets)
        self._file = slices.Writer(target, self._slices)
        self._waiting: list[pa.RecordBatch] = []
        self._counts: list[Integers] = []
        """How many rows of each slice a waiting batch holds, one slice after the other."""
        self._waiting_rows = 0

    def add(self, batch: Batch) -> None:
        bucket = buckets_of_batch(batch, self._wish.buckets)
        self.touched.update(np.unique(bucket).tolist())
        self.rows += int((batch.piece == 0).sum())
        self.undecoded.update(dict(enumerate(np.bincount(batch.undecoded, minlength=len(UNDECODED)).tolist())))
        which = (bucket % self._slices).astype(np.uint16)
        # Sorted before the columns are built: afterwards there are sixty of them to be moved.
        ordered = batch.ordered(np.argsort(which, kind="stable"))
        self._waiting.append(arrow_batch(ordered, DATAGRAMS.names, dictionaries=True, payload=self._wish.payload))
        self._counts.append(np.bincount(which, minlength=self._slices))
        self._waiting_rows += len(batch)
        if self._waiting_rows >= WAITING_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches = pa.Table.from_batches(self._waiting).unify_dictionaries().to_batches()
        counts = np.array(self._counts)
        starts = np.cumsum(counts, axis=1) - counts
        for number in np.flatnonzero(counts.sum(axis=0)).tolist():
            places = zip(batches, starts[:, number].tolist(), counts[:, number].tolist(), strict=True)
            self._file.write(number, pa.Table.from_batches([rows.slice(start, count) for rows, start, count in places]))
        self._waiting, self._counts, self._waiting_rows = [], [], 0

    def close(self) -> None:
        self._flush()
        self._file.close()


def _published(
    lake: Lake,
    staging: Path,
    files: Sequence[Named],
    parts: Sequence[Part],
    answers: Sequence[dict[str, Any]],
    outcome: Ingestion,
    wish: _Wish,
) -> None:
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part, answer in zip(parts, answers, strict=True):
        by_file[part.file_id].append(answer)
    for file, file_id in files:
        refused = [answer["refused"] for answer in by_file[file_id] if "refused" in answer]
        if refused:
            outcome.problems.append(refused[0])
            continue
        about = _summed(file, file_id, by_file[file_id], wish)
        outcome.problems.extend(about.problems)
        if about.rows:
            folder = staging / file_id
            (folder / ABOUT).write_text(json.dumps(asdict(about), indent=1) + "\n")
            exchange_folder(folder, lake.captures / file_id)
            outcome.added.append(about)


def _summed(file: CaptureFile, file_id: str, answers: Sequence[dict[str, Any]], wish: _Wish) -> About:
    undecoded: Counter[str] = Counter()
    for answer in answers:
        undecoded.update(answer["undecoded"])
    return About(
        file_id=file_id,
        file=file.name,
        size_bytes=file.size_bytes,
        rows=sum(answer["rows"] for answer in answers),
        payload=wish.payload,
        undecoded={reason: count for reason, count in sorted(undecoded.items()) if count},
        problems=list(dict.fromkeys(problem for answer in answers for problem in answer["problems"])),
        buckets=wish.buckets,
        touched=sorted({bucket for answer in answers for bucket in answer["touched"]}),
    )
