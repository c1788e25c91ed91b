"""What Spark's checkpoint says: who the stream is, what each batch holds, and which batches are done.

Spark writes `offsets/N` before batch N runs and `commits/N` after it, and never syncs them. The stream does: a batch
has no effect before its offsets are on disk, and nothing is removed or merged before the commit that allows it is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fairway.core.errors import FairwayError
from fairway.core.layout import stream_positions
from fairway.lake.store import sync


class DamagedCheckpoint(FairwayError):
    """The checkpoint does not belong to the table, or cannot be read."""


class Checkpoint:
    """The folder that a streaming query keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def query(self) -> str | None:
        """Gives the identity of the stream, which names its files; None before its first start."""
        try:
            return str(json.loads((self.folder / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise DamagedCheckpoint(f"{self.folder / 'metadata'} cannot be read: restore it from a copy.") from error

    def repair(self) -> None:
        """Removes what a power cut, a kill or a full disk left half-written: the newest note of each kind, if it is not
        whole, and whatever never got its name.

        That does no harm: nothing of a batch happens before its offsets are synced, and a batch without its commit is
        done again. Checksums go too, since they may be half-written; Spark does without. A leftover beside no planned
        batch would keep Spark from beginning.
        """
        for kind, is_whole in (("offsets", self._has_positions), ("commits", self._has_version)):
            for hidden in (self.folder / kind).glob(".*"):
                hidden.unlink()
            newest = max(self._numbers(kind), default=None)
            if newest is not None and not is_whole(newest):
                (self.folder / kind / str(newest)).unlink()
        metadata = self.folder / "metadata"
        if self.is_empty() and metadata.exists():
            (self.folder / ".metadata.crc").unlink(missing_ok=True)
            metadata.unlink()

    def _has_positions(self, batch: int) -> bool:
        try:
            self.positions(batch)
        except DamagedCheckpoint:
            return False
        return True

    def _has_version(self, batch: int) -> bool:
        return (self.folder / "commits" / str(batch)).read_bytes().startswith(b"v")

    def committed(self) -> int:
        """Gives the number of the last batch that is done, -1 if none is."""
        return max(self._numbers("commits"), default=-1)

    def is_empty(self) -> bool:
        """Tells whether no batch was ever planned."""
        return not self._numbers("offsets")

    def positions(self, batch: int) -> dict[str, int]:
        """Gives where a batch ends: each gateway's next offset."""
        if batch < 0:
            return {}
        path = self.folder / "offsets" / str(batch)
        try:
            return stream_positions(path.read_text())
        except FileNotFoundError:
            raise DamagedCheckpoint(f"{path} is missing: restore the checkpoint from a copy.") from None
        except (ValueError, IndexError, AttributeError) as error:
            raise DamagedCheckpoint(f"{path} cannot be read: restore the checkpoint from a copy.") from error

    def sync(self, batch: int) -> None:
        """Forces to disk that the batch before is done and what this one holds."""
        self._sync(".", "metadata")
        self._sync("commits", str(batch - 1))
        self._sync("offsets", str(batch))

    def sync_commit(self, batch: int) -> None:
        """Forces to disk that a batch is done."""
        self._sync("commits", str(batch))

    def _sync(self, folder: str, name: str) -> None:
        # The checksum beside a file is checked when it is there: half of one would make Spark refuse the file.
        for path in (self.folder / folder / name, self.folder / folder / f".{name}.crc"):
            if path.exists():
                sync(path)
        if (self.folder / folder).exists():
            sync(self.folder / folder)

    def _numbers(self, folder: str) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder / folder) if name.isdigit()]
        except FileNotFoundError:
            return []
