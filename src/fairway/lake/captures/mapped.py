"""Datagrams decoded one by one, by the ports that a map names: what the source reads with the option `map`.

Nothing is known of the conversation here, so mrp's data is read as stamped wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.tables import MAPPED, PROTOCOLS, RECORDS
from fairway.lake.arrays import MISSING, Codes, named
from fairway.lake.captures.readings import Readings
from fairway.lake.captures.recognition import spoken_on_ports
from fairway.lake.captures.rows import Batch, arrow_batch
from fairway.lake.schemas import arrow_schema

SCHEMA = arrow_schema(MAPPED)
_NEEDED = ("source_port", "destination_port", "undecoded", "head", "payload_bytes", "payload_crc")


def mapped_batch(batch: Batch, port_map: Mapping[int, str], names: Sequence[str], *, payload: bool) -> pa.RecordBatch:
    """Build the columns of these names."""
    own = [name for name in RECORDS.names if name in names]
    records = arrow_batch(batch, [*own, *(name for name in _NEEDED if name not in own)], payload=payload)
    rows = Readings(pa.Table.from_batches([records]), {})
    spoken = np.where(rows.no_datagram, MISSING, spoken_on_ports(rows.records, port_map)).astype(np.int16)
    arrays = [records.column(name) if name in own else _column(rows, spoken, name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in names]))


def _column(rows: Readings, spoken: Codes, name: str) -> pa.Array:
    if name == "protocol":
        return named(spoken, PROTOCOLS).dictionary_decode()
    owner = name.partition("_")[0]
    if owner in PROTOCOLS:
        mine = pa.array(spoken == PROTOCOLS.index(owner))
        found = rows.array(name)
        return pc.if_else(mine, found, pa.scalar(None, found.type))
    found = pa.nulls(len(rows), pa.string())
    for number, protocol in enumerate(PROTOCOLS):
        if (spoken == number).any():
            of_protocol = rows.array(f"{protocol}_{name}").dictionary_decode()
            found = pc.if_else(pa.array(spoken == number), of_protocol, found)
    return found
