"""Received messages as files: whole or not there, and never in place of another."""

from __future__ import annotations

from pathlib import Path

from fairway.net import Message
from fairway.store.files import make_folder, write_file


class Files:
    """Writes each message to a file of its own in one folder."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder.absolute())
        self._folder = folder

    def write(self, message: Message) -> Path:
        """Write the body, sync it, and return where it is: protocol, peer and id are in the name."""
        peer = message.peer.peer.replace("[", "").replace("]", "").replace(":", "_")
        name = f"{message.peer.protocol}-{peer}-{message.id}"
        path = self._folder / name
        number = 1
        while path.exists():  # another session of the same peer counts from the same number
            number += 1
            path = self._folder / f"{name}-{number}"
        write_file(path, message.body)
        return path
