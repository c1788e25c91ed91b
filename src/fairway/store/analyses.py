"""The tables of captures as one: each at the newest run of the analysis that all of them hold.

Every commit of a run carries its number as the position of one application, `captures` first and `sessions` last. So a
reader that meets a run between two commits, or one that was never finished, goes back to the run before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.layout import TABLES
from fairway.core.tables import ANALYSIS_TABLES
from fairway.store.delta import Delta, VersionGone
from fairway.store.locations import Location

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

APPLICATION = "fairway/analysis"
"""The application whose position in a table is the number of the last run that has committed to it."""


def tables(lake: Location) -> dict[str, Delta]:
    """Return the tables of captures by name; they need not be there."""
    return {table.name: Delta(lake / TABLES / table.name) for table in ANALYSIS_TABLES}


def common_run(lake: Location) -> dict[str, DeltaTable]:
    """Return a snapshot of each table that is there, at the newest run that all of them hold.

    Where the history of a table does not reach back so far, it is read as it is.
    """
    there = {name: table for name, table in tables(lake).items() if table.exists()}
    found = {name: table.open() for name, table in there.items()}
    while found:
        runs = {name: there[name].position(snapshot, APPLICATION) for name, snapshot in found.items()}
        run = min(runs.values())
        ahead = [name for name, held in runs.items() if held > run]
        if not ahead:
            break
        try:
            found |= {name: there[name].open(found[name].version() - 1) for name in ahead}
        except VersionGone:
            break
    return found


def dataset(table: Delta, snapshot: DeltaTable) -> ds.Dataset:
    """Return the rows of a snapshot for Arrow, without the columns by which its folders are cut."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    filesystem, path = table.location.filesystem()
    cut = snapshot.metadata().partition_columns
    schema = pa.schema([field for field in pa.schema(snapshot.schema()) if field.name not in cut])
    files = [f"{path}/{file.path}" for file, _ in table.files(snapshot)]
    return ds.dataset(files, schema=schema, format="parquet", filesystem=filesystem)


def datasets(lake: Location) -> dict[str, ds.Dataset]:
    """Return the rows of every table that is there, all at one run."""
    deltas = tables(lake)
    return {name: dataset(deltas[name], snapshot) for name, snapshot in common_run(lake).items()}
