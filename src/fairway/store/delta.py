"""Delta tables without Spark, through delta-rs: open, create, commit, read positions, list what is new, repair.

delta-rs syncs nothing, so this module does. Data files are synced before a commit refers to them, and a commit counts
only after its log entry is synced. After a power cut the newest log entry may be empty, full of zeros or truncated:
`mend` removes it, and whatever it held is written again by whoever finds the table behind. Checkpoints of the log and
its cleanup are left to `tending.py`, in an order that keeps the entries until their checkpoint is synced.

A position is the version of a `txn` action, by an application's name. delta-rs does not enforce its order: `commit`
compares positions on the snapshot that it commits on, and the library refuses a second writer on the same snapshot.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fairway.core.errors import FairwayError
from fairway.store import crashpoints
from fairway.store.files import make_folder
from fairway.store.locations import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction, Transaction

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
ACTIONS = "fairwayActions"
"""In a commit's info: how many other actions the entry has, so that one truncated between two lines is recognised."""

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
_LEFTOVER = re.compile(r"_commit_.*\.tmp|\._last_checkpoint\.\d+")


class NoTable(FairwayError):
    """There is no table at this location."""


class DamagedTable(FairwayError):
    """A table cannot be read; the message names it."""


class Overtaken(FairwayError):
    """Another writer has advanced the table."""


class VersionGone(FairwayError):
    """The log does not reach back to the version that was asked for."""


class RowsRewritten(FairwayError):
    """Rows were changed or removed since the version that was asked for."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table, or one that is to become one; the path is relative to the table."""

    path: str
    size_bytes: int
    rows: int
    partition: Mapping[str, str | None]
    stats: str = "{}"


Advances = Mapping[str, tuple[int, int]]
"""By application: the position that the table must have, and the one that it gets."""


class Delta:
    """A Delta table, by its location."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.log = location / LOG

    def exists(self) -> bool:
        return any(_ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in self.log.names())

    def open(self, version: int | None = None) -> DeltaTable:
        """Return a snapshot, the newest or one at a version; raise `NoTable`, `VersionGone` or `DamagedTable`."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.location.uri, version=version)
        except TableNotFoundError:
            raise NoTable(f"{self.location} is no table.") from None
        except DeltaError as error:
            if version is not None and self.exists():
                raise VersionGone(f"{self.location} has no version {version}, or not any more.") from error
            reason = str(error).splitlines()[0]
            raise DamagedTable(
                f"{self.location} cannot be opened ({reason}): start the stream, which repairs what a power cut "
                "leaves; if it says this too, restore the table from a copy."
            ) from error

    def create(
        self,
        schema: Any,
        partitions: Sequence[str],
        *,
        configuration: Mapping[str, str],
        positions: Mapping[str, int],
        overwrite: bool = False,
    ) -> None:
        """Make the table, with these positions from its first version on; raise `Overtaken` if another has done so."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import CommitProperties, Transaction

        if self.location.is_folder:
            make_folder(self.log.folder)
        try:
            made = DeltaTable.create(
                self.location.uri,
                schema,
                mode="overwrite" if overwrite else "error",
                partition_by=list(partitions),
                configuration=dict(configuration),
                commit_properties=CommitProperties(
                    custom_metadata={ACTIONS: 2 + len(positions)},  # protocol, metadata
                    app_transactions=[Transaction(name, position) for name, position in positions.items()],
                ),
                post_commithook_properties=by_itself(),
                raise_if_key_not_exists=False,
            )
        except DeltaError as error:
            if overwrite or not self.exists():
                raise
            raise Overtaken(f"Another writer has made {self.location} at the same time.") from error
        self.settle(made.version(), made)

    def position(self, snapshot: DeltaTable, application: str) -> int:
        """Return how far an application is in a snapshot; 0 before its first commit."""
        return int(snapshot.transaction_version(application) or 0)

    def commit(
        self,
        snapshot: DeltaTable,
        files: Iterable[DataFile],
        *,
        removes: Sequence[RemoveAction] = (),
        advances: Advances | None = None,
    ) -> int:
        """Commit files that are on disk, removals and positions together on a snapshot; return the version.

        Raises `Overtaken` if a position is another than was thought, or becomes so meanwhile.
        """
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, Transaction

        advances = advances or {}
        for application, (wanted, _) in advances.items():
            found = self.position(snapshot, application)
            if found != wanted:
                raise Overtaken(
                    f"{self.location} is at {found} for {application}, not at {wanted}: another writer fills it."
                )
        now_ms = time.time_ns() // 1_000_000
        adds = [AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.stats) for file in files]
        transactions = [Transaction(name, to) for name, (_, to) in advances.items()]
        first = snapshot.version() + 1
        try:
            _write(snapshot, [*adds, *removes], transactions)
        except CommitFailedError as error:
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise Overtaken(f"Another writer fills {self.location} at the same time ({error}).") from error
        crashpoints.reached("table-committed")
        version = self.settle(first, snapshot)
        crashpoints.reached("table-synced")
        return version

    def settle(self, first: int, snapshot: DeltaTable, *, files: bool = False) -> int:
        """Make the log durable from a version on, with the files that it adds if the library wrote them.

        Brings the snapshot up to date and returns its version.
        """
        snapshot.update_incremental()
        for version in range(first, snapshot.version() + 1) if self.location.is_folder else ():
            for action in self.entry(version) if files else ():
                if "add" in action:
                    self.location.sync(unquote(action["add"]["path"]))
            self.log.sync(_entry_name(version))
        return snapshot.version()

    def log_since_checkpoint(self, version: int) -> list[str]:
        """Return the names of the newest checkpoint below a version and of the entries from it to that version."""
        names, end = self.log.names(), f"{version:020}"
        below = max((name for name in names if _CHECKPOINT.fullmatch(name) and name[:20] < end), default="")
        return [name for name in names if name == below or (_ENTRY.fullmatch(name) and below[:20] < name[:20] <= end)]

    def entry(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit; raise `FileNotFoundError`, or `ValueError` if the entry is damaged."""
        lines = self.log.read(_entry_name(version)).splitlines()
        return [json.loads(line) for line in lines if line]

    def files(self, snapshot: DeltaTable) -> Iterator[tuple[DataFile, dict[str, Any]]]:
        """Return the files of a snapshot, each with everything that the log says about it."""
        import pyarrow as pa

        partitions = snapshot.metadata().partition_columns
        for row in pa.table(snapshot.get_add_actions(flatten=True)).to_pylist():
            values = {name: row[f"partition.{name}"] for name in partitions}
            partition = {name: None if value is None else str(value) for name, value in values.items()}
            yield DataFile(unquote(row["path"]), row["size_bytes"], row["num_records"], partition), row

    def rows(self, wanted: Any) -> Iterator[Any]:
        """Return some columns of all rows, an Arrow schema in and Arrow batches out, in one snapshot."""
        from fairway.store.parquet import batches

        for file, _ in self.files(self.open()):
            yield from batches(self.location, file.path, wanted, file.partition)

    def added(self, since: int, until: int) -> list[DataFile]:
        """Return the files with rows that are new after one version and up to another, oldest first.

        Compactions are passed over: the files that they replaced are still there, until they are vacuumed.
        """
        found = []
        for version in range(since + 1, until + 1):
            try:
                actions = self.entry(version)
            except FileNotFoundError:
                raise VersionGone(
                    f"The log of {self.location} does not reach back to version {since}: read the table as a whole, "
                    "and keep a longer history if that happens again."
                ) from None
            if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
                raise RowsRewritten(
                    f"Version {version} of {self.location} changes or removes rows, so there is no list of new ones: "
                    "read the table as a whole."
                )
            added = [action["add"] for action in actions if "add" in action]
            found += [_data_file(one) for one in added if one.get("dataChange", True)]
        return found

    # After a power cut.

    def mend(self) -> list[str]:
        """Remove what a power cut or a kill left half-written at the end of the log; return the names of its entries.

        Only for the one writer of a table, and before it reads the table.
        """
        if not self.location.is_folder:
            return []
        names = self.log.names()
        entries = sorted(filter(_ENTRY.fullmatch, names), reverse=True)
        torn = list(takewhile(lambda name: not self._is_whole(name), entries))
        leftovers = [name for name in names if _LEFTOVER.fullmatch(name)]
        gone = [*torn, *leftovers]
        for name in gone:
            self.log.remove(name)
        if gone:
            self.log.sync("")
        self._undo_compaction()
        return torn

    def _is_whole(self, name: str) -> bool:
        try:
            actions = self.entry(int(name[:20]))
        except ValueError:
            return False
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        metrics = info.get("operationMetrics", {})
        if info.get("operation") == "OPTIMIZE" and "numFilesAdded" in metrics:
            added, removed = (sum(kind in action for action in actions) for kind in ("add", "remove"))
            return (added, removed) == (metrics["numFilesAdded"], metrics["numFilesRemoved"])
        # delta-rs writes this first, so an entry without it is another writer's.
        return bool(actions) and len(actions) - 1 == int(info.get(ACTIONS, len(actions) - 1))

    def _undo_compaction(self) -> None:
        """Put the files back that the newest commit has merged: nothing proves that the merged ones were synced.

        By a commit of its own, so that no version is given twice. Where one of those files is gone, vacuum has begun,
        which is after the sync.
        """
        from deltalake.transaction import AddAction, RemoveAction

        versions = [int(name[:20]) for name in self.log.names() if _ENTRY.fullmatch(name)]
        actions = self.entry(max(versions)) if versions else []
        if not any(action.get("commitInfo", {}).get("operation") == "OPTIMIZE" for action in actions):
            return
        leaving = [_data_file(action["add"]) for action in actions if "add" in action]
        back = {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
        if not all((self.location.folder / path).exists() for path in back):
            return
        before = self.open(max(versions) - 1)
        now_ms = time.time_ns() // 1_000_000
        # Without bounds, which the next compaction brings back.
        adds = [
            AddAction(one.path, one.size_bytes, one.partition, now_ms, False, json.dumps({"numRecords": one.rows}))
            for one, _ in self.files(before)
            if one.path in back
        ]
        removes = [RemoveAction(one.path, False, now_ms, one.size_bytes, dict(one.partition)) for one in leaving]
        snapshot = self.open()
        first = snapshot.version() + 1
        _write(snapshot, [*adds, *removes], [])
        self.settle(first, snapshot)


def _write(snapshot: DeltaTable, actions: list[AddAction | RemoveAction], positions: list[Transaction]) -> None:
    from deltalake.transaction import CommitProperties

    counted = {ACTIONS: len(actions) + len(positions)}
    snapshot.create_write_transaction(
        actions,
        "append",
        snapshot.schema(),
        snapshot.metadata().partition_columns,
        commit_properties=CommitProperties(custom_metadata=counted, app_transactions=positions or None),
        post_commithook_properties=by_itself(),
    )


def by_itself() -> PostCommitHookProperties:
    """Keep the library from checkpoints and cleanup after a commit: they have their time, and are synced then."""
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _entry_name(version: int) -> str:
    return f"{version:020}.json"


def _data_file(added: Mapping[str, Any]) -> DataFile:
    stats = added.get("stats") or "{}"
    rows = json.loads(stats).get("numRecords", 0)
    return DataFile(unquote(added["path"]), added["size"], rows, added["partitionValues"], stats)
