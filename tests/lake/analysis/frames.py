"""Captures as rows of `DATAGRAMS`, made in the test's own process: small, and independent of the source on Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from fairway.core.tables import DATAGRAMS, PROTOCOLS
from fairway.lake.schemas import arrow_schema
from tests.capture.datagrams import Datagram, decode_frame
from tests.capture.reading import read_capture

FIELDS = {
    "udpc": {"udpc_index": "index", "udpc_session": "session_id", "udpc_ack": "ack_index", "udpc_flag": "flag"},
    "mrp": {
        "mrp_version": "ver",
        "mrp_status": "stat",
        "mrp_client": "cl_conid",
        "mrp_server": "sv_conid",
        "mrp_destination": "dest_conid",
        "mrp_origin": "from_conid",
        "mrp_sequence": "sequence",
        "mrp_stamp": "stamp",
        "mrp_from_sequence": "from_seq",
        "piggyback_destination": "piggyback_dest_conid",
        "piggyback_origin": "piggyback_from_conid",
        "piggyback_sequence": "piggyback_sequence",
        "mrp_stamped": "stamped",
        "mrp_piggyback": "piggyback",
    },
    "rup": {"rup_id": "id", "rup_position": "position", "rup_total": "total", "rup_start": "start"},
    "pydevts": {"pydevts_id": "message_id", "pydevts_success": "success", "pydevts_crc": "crc"},
}


def datagrams(captures: Iterable[tuple[str, bytes]]) -> pa.Table:
    """Return the rows of captures, each a name and the bytes of its file."""
    rows = [row for name, data in captures for row in _rows(name, data)]
    columns = {column: [row.get(column) for row in rows] for column in DATAGRAMS.names}
    return pa.table(columns, schema=arrow_schema(DATAGRAMS))


def _rows(name: str, data: bytes) -> list[dict[str, Any]]:
    rows = []
    payloads = []
    for number, frame in enumerate(read_capture(data), 1):
        datagram = decode_frame(frame)
        assert isinstance(datagram, Datagram)
        ends = sorted((datagram.source, datagram.destination))
        rows.append(
            {
                "file_id": f"id of {name}",
                "file": name,
                "offset": 100 * number,
                "frame": number,
                "point": frame.point or "",
                "at": frame.at_ns // 1_000,
                "at_ns": frame.at_ns,
                "source": datagram.source[0],
                "source_port": datagram.source[1],
                "destination": datagram.destination[0],
                "destination_port": datagram.destination[1],
                "frame_bytes": len(frame.data),
                "payload_bytes": len(datagram.payload),
                "truncated": False,
                "flow": zlib.crc32(repr(ends).encode()) * 0x9E3779B1 & 0x7FFF_FFFF_FFFF,
                "payload": datagram.payload,
            }
        )
        payloads.append(datagram.payload)
    for protocol in PROTOCOLS:
        _read_as(protocol, rows, payloads)
    return rows


def _read_as(protocol: str, rows: list[dict[str, Any]], payloads: list[bytes]) -> None:
    lengths = np.array([len(payload) for payload in payloads], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    buffer = np.frombuffer(b"".join(payloads) + bytes(64), dtype=np.uint8)
    columns = import_module(f"fairway.protocols.{protocol}.columns").decode_columns(buffer, offsets, lengths)
    for index, row in enumerate(rows):
        kind = columns.kinds[columns.kind[index]]
        row[f"{protocol}_kind"] = kind
        if kind == "malformed":
            row[f"{protocol}_reason"] = columns.reasons[columns.reason[index]]
            continue
        body = (
            row["payload"][len(row["payload"]) - int(columns.body_bytes[index]) :] if columns.body_bytes[index] else b""
        )
        row[f"{protocol}_body_crc"] = zlib.crc32(body)
        values = {column: _plain(columns.fields[field][index]) for column, field in FIELDS[protocol].items()}
        row.update(_that_exist(protocol, kind, values, row))


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else int(value)


def _that_exist(protocol: str, kind: str, values: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what a datagram of this kind does not have."""
    if protocol == "udpc" and not values["udpc_flag"] & 1:
        del values["udpc_ack"]
    if protocol == "rup" and kind != "data":
        del values["rup_total"], values["rup_start"]
    if protocol != "mrp":
        return values
    wanted = {
        "connect": ("mrp_version", "mrp_client"),
        "con_reply": ("mrp_status", "mrp_client", "mrp_server"),
        "ack": ("mrp_destination", "mrp_origin", "mrp_sequence", "mrp_stamp"),
        "ignore": (),
    }
    if kind == "data":
        values["mrp_stamped"], values["mrp_piggyback"] = bool(values["mrp_stamped"]), bool(values["mrp_piggyback"])
        row["piggyback_body_crc"] = zlib.crc32(row["payload"][12:]) if values["mrp_piggyback"] else None
        absent = ["mrp_destination", "mrp_origin", "mrp_sequence", "mrp_stamp"] if not values["mrp_stamped"] else []
        if not values["mrp_piggyback"]:
            absent += ["mrp_from_sequence", "piggyback_destination", "piggyback_origin", "piggyback_sequence"]
        kept = [name for name in FIELDS["mrp"] if name.startswith(("mrp_", "piggyback_")) and name not in absent]
        drop = ("mrp_version", "mrp_status", "mrp_client", "mrp_server")
        return {name: values[name] for name in kept if name not in drop}
    return {name: values[name] for name in wanted[kind]}
