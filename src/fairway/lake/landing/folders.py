"""A partition's folder: how a batch's files get into it, and how files in it are exchanged for others in one step.

A batch is published file by file while its names are new, or hold the same rows already. If an earlier attempt at the
same batch left other files (another version cut it differently), the folder is exchanged as a whole: at no moment a
row is there twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from fairway.lake.landing.names import FileName, parse
from fairway.lake.store import exchange_folder, publish_files


def table_files(table: Path) -> list[Path]:
    """Lists the files of a table."""
    return sorted(table.rglob("*.parquet")) if table.exists() else []


def partitions(table: Path) -> list[Path]:
    """Lists the folders of a table that hold files."""
    return sorted({path.parent for path in table_files(table)})


def publish_batch(staged: Mapping[str, Path], folder: Path, query: str, batch: int, aside: Path) -> int:
    """Puts a batch's files, by their names, into a partition's folder; gives how many.

    `aside` is a name below `staging/` for a folder that may be needed on the way.
    """
    there = _listed(folder)
    if any(name.compacted and name.query == query and name.last >= batch for name in there.values()):
        return 0
    earlier = [file for file, name in there.items() if (name.query, name.last) == (query, batch)]
    if all(file in staged and _same_rows(folder / file, staged[file]) for file in earlier):
        publish_files((path, folder / file) for file, path in sorted(staged.items()))
    else:
        replace_files(folder, earlier, staged, aside)
    return len(staged)


def replace_files(folder: Path, leaving: Iterable[str], coming: Mapping[str, Path], aside: Path) -> None:
    """Takes some files out of a folder and puts others in, in one step."""
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    gone = set(leaving)
    for entry in sorted(os.listdir(folder)):
        if entry not in gone and entry not in coming:
            _keep(folder / entry, aside / entry)
    for name, path in sorted(coming.items()):
        os.replace(path, aside / name)
    exchange_folder(aside, folder)


def _keep(path: Path, name: Path) -> None:
    """Gives a file a second name; where the file system has no such thing, a copy must do."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copy2(path, name)


def _listed(folder: Path) -> dict[str, FileName]:
    names = {file: parse(file) for file in os.listdir(folder)} if folder.exists() else {}
    return {file: name for file, name in names.items() if name is not None}


def _same_rows(one: Path, other: Path) -> bool:
    """Tells whether two files of the same batch hold the same rows, by what their footers say."""
    return _extent(one) == _extent(other)


def _extent(path: Path) -> tuple[object, ...]:
    metadata = pq.read_metadata(path)
    place = metadata.schema.names.index("offset")
    statistics = [metadata.row_group(index).column(place).statistics for index in range(metadata.num_row_groups)]
    bounds = [(found.min, found.max) if found else None for found in statistics]
    return (metadata.num_rows, *bounds)
