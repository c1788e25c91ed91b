"""Small lakes for the tests of pages: tables with exactly the columns of `core/tables.py`, made without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from fairway.core.tables import CAPTURE_TABLES, SESSIONS, TIMELINE, Table
from fairway.store.parquet import arrow_schema

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000

Row = dict[str, object]
KINDS = {"udpc": ("important", "important_ack"), "mrp": ("data", "ack"), "rup": ("data", "confirm")}
HANDSHAKES = {"udpc": ("syn", "syn_ack"), "mrp": ("connect", "con_reply")}


def put(lake: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write rows as a Delta table; what a row does not say is null."""
    names = [name for name in table.names if name not in table.partitions]
    full = [
        {column: row.get(column, 0 if column in ("piece", "damages_before") else None) for column in names}
        for row in rows
    ]
    wanted = pa.schema([field for field in arrow_schema(table) if field.name in names])
    write_deltalake(str(lake / "tables" / table.name), pa.Table.from_pylist(full, wanted), mode="append")


@dataclass(slots=True)
class Tables:
    """Rows of all tables, gathered session by session."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {table.name: [] for table in CAPTURE_TABLES})

    def write(self, lake: Path, leave_out: Sequence[str] = ()) -> Path:
        """Write all tables but those left out."""
        for table in CAPTURE_TABLES:
            if table.name not in leave_out:
                put(lake, table, self.rows[table.name])
        return lake


def transmission(
    tables: Tables,
    number: int,
    *,
    protocol: str = "udpc",
    point: str = "client",
    loss: float = 0.0,
    messages: int = 200,
    size: int = 1_000,
    rtt_us: int = 40_000,
    rate_per_s: int = 50,
    end: str = "closed",
    file: str = "link.pcapng",
    broken: Sequence[str] = (),
) -> str:
    """Add one conversation as its sender would have captured it, and return its key."""
    chance = Random(number)
    session = f"{protocol}-{number:06d}"
    began_us = START_US + number * 137_000
    sent: list[Row] = []
    transfers: list[Row] = []
    packet = _packet(session, protocol, point, file)
    for step, kind in enumerate(HANDSHAKES.get(protocol, ())):
        sent.append(packet(began_us + step * rtt_us, step == 0, kind, None, 0, 0))
    for message in range(1, messages + 1):
        at_us = began_us + 2 * rtt_us + message * SECOND_US // rate_per_s
        attempts, first_us = 1, at_us
        identity = f"{number:028x}{message // 20:04x}" if protocol == "rup" else str(message)
        while chance.random() < loss and attempts < 8:
            sent.append(packet(at_us, True, KINDS[protocol][0], identity, attempts - 1, size, message))
            at_us += rtt_us * 2**attempts
            attempts += 1
        sent.append(packet(at_us, True, KINDS[protocol][0], identity, attempts - 1, size, message))
        heard_us = at_us + rtt_us + chance.randrange(rtt_us // 4)
        answer = packet(heard_us, False, KINDS[protocol][1], identity, 0, 0, message)
        sent.append(answer | {"acknowledged_sent_ns": at_us * 1_000} if attempts == 1 else answer)
        transfers.append(_transfer(session, protocol, point, message, size, first_us, at_us, attempts, heard_us))
    sent.sort(key=lambda row: int(str(row["at_ns"])))
    for step, row in enumerate(sent):
        row |= {"frame": number * 10_000 + step + 1, "offset": step * 100}
    tables.rows["packets"] += sent
    tables.rows["transfers"] += transfers
    tables.rows["timeline"] += _timeline(session, protocol, point, sent, rtt_us)
    tables.rows["violations"] += [_violation(rule, session, protocol, sent[5 + at]) for at, rule in enumerate(broken)]
    tables.rows["sessions"].append(_session(session, protocol, point, number, sent, rtt_us, len(broken), messages, end))
    return session


def alone(messages: int, **options: Any) -> Tables:
    """Return the tables of one conversation."""
    tables = Tables()
    transmission(tables, 1, messages=messages, **options)
    return tables


def _packet(session: str, protocol: str, point: str, file: str):  # type: ignore[no-untyped-def]
    def packet(at_us: int, out: bool, kind: str, message: str | None, copy: int, size: int, number: int = 0) -> Row:
        row: Row = {
            "file_id": "f", "file": file, "point": point, "at": at_us, "at_ns": at_us * 1_000,
            "frame_bytes": size + 60, "payload_bytes": size + 13, "truncated": False, "protocol": protocol,
            "kind": kind, "session": session, "from_caller": out, "message": message, "retransmission": copy,
            "body_bytes": size,
        }  # fmt: skip
        if protocol == "udpc":
            row |= {"udpc_index": number or 1, "udpc_ack": None if out else number}
        if protocol == "mrp":
            row |= {"mrp_sequence": number}
        if protocol == "rup":
            row |= {"rup_position": number % 20 * size, "rup_total": 20 * size if out else None}
        return row

    return packet


def _transfer(
    session: str, protocol: str, point: str, message: int, size: int, first_us: int, last_us: int, attempts: int,
    heard_us: int,
) -> Row:  # fmt: skip
    return {
        "session": session, "protocol": protocol, "point": point, "from_caller": True, "message": str(message),
        "kind": "important", "size_bytes": size, "parts": 1, "first_sent": first_us, "last_sent": last_us,
        "attempts": attempts, "copies": attempts - 1, "acknowledged": heard_us, "latency_us": heard_us - first_us,
        "outcome": "acknowledged",
    }  # fmt: skip


def _timeline(session: str, protocol: str, point: str, sent: list[Row], rtt_us: int) -> list[Row]:
    seconds: dict[int, Row] = {}
    for row in sent:
        second = int(str(row["at_ns"])) // 1_000 // SECOND_US * SECOND_US
        sums = seconds.setdefault(second, dict.fromkeys(TIMELINE.names, 0) | {"rtt_p50_us": None, "rtt_p99_us": None})
        way = "out" if row["from_caller"] else "in"
        copy = bool(row["retransmission"])
        for name, value in (("packets", 1), ("bytes", row["payload_bytes"]), ("retransmissions", int(copy))):
            sums[f"{name}_{way}"] = int(str(sums[f"{name}_{way}"])) + int(str(value))
        if not copy:
            sums[f"goodput_{way}"] = int(str(sums[f"goodput_{way}"])) + int(str(row["body_bytes"]))
        if way == "in":
            sums |= {"rtt_samples": int(str(sums["rtt_samples"])) + 1, "rtt_p50_us": rtt_us, "rtt_p99_us": 2 * rtt_us}
    named = {"session": session, "protocol": protocol, "point": point, "loss_out": None, "loss_in": None}
    return [row | named | {"second": second, "rtt_p90_us": rtt_us} for second, row in sorted(seconds.items())]


def _violation(rule: str, session: str, protocol: str, packet: Row) -> Row:
    return {
        "rule": rule, "severity": "warning" if rule.endswith("w") else "error", "protocol": protocol,
        "session": session, "point": packet["point"], "file_id": "f", "file": packet["file"],
        "offset": packet["offset"], "frame": packet["frame"], "at": packet["at"],
        "found": "an acknowledgement of index 77", "expected": "an index that was sent",
    }  # fmt: skip


def _session(
    session: str, protocol: str, point: str, number: int, sent: list[Row], rtt_us: int, broken: int, messages: int,
    end: str,
) -> Row:  # fmt: skip
    out = [row for row in sent if row["from_caller"]]
    copies = sum(bool(row["retransmission"]) for row in out)
    first, last = int(str(sent[0]["at"])), int(str(sent[-1]["at"]))
    return {
        "session": session, "protocol": protocol, "point": point, "flow": number, "caller": f"10.0.{number % 250}.2",
        "caller_port": 40_000 + number % 20_000, "callee": "192.0.2.10", "callee_port": 9_000,
        "protocol_session": None, "first": first, "last": last, "duration_us": last - first, "from_start": True,
        "handshake_us": rtt_us, "packets_out": len(out), "packets_in": len(sent) - len(out),
        "bytes_out": sum(int(str(row["payload_bytes"])) for row in out), "bytes_in": 13 * (len(sent) - len(out)),
        "transfers_out": messages, "transfers_in": 0, "retransmissions_out": copies, "retransmissions_in": 0,
        "duplicates": 0, "retransmission_ratio": copies / len(out), "duplicate_ratio": 0.0,
        "rtt_samples": messages, "rtt_min_us": rtt_us, "rtt_p50_us": rtt_us + 2_000, "rtt_p90_us": rtt_us + 4_000,
        "rtt_p99_us": rtt_us + 9_000, "loss_out": copies / len(out), "loss_in": None, "violations": broken,
        "ending": end,
    }  # fmt: skip


def mixed() -> Tables:
    """Return a few dozen conversations: good ones, lossy ones, one that breaks rules, one never answered."""
    tables = Tables()
    for number in range(24):
        protocol = ("udpc", "mrp", "rup")[number % 3]
        transmission(tables, number, protocol=protocol, loss=(0.0, 0.0, 0.0, 0.02, 0.12)[number % 5], rate_per_s=40)
    transmission(tables, 90, loss=0.3, messages=400, rate_per_s=80, broken=("UDPC-3.4", "UDPC-5.1", "UDPC-6.2w"))
    transmission(tables, 91, protocol="mrp", messages=30, end="unanswered")
    return tables


def crowd(sessions: int) -> pa.Table:
    """Return a sessions table of any size, made by columns."""
    import numpy as np

    number = np.arange(sessions)
    ratio = (number * 7_919 % 1_000) / 5_000
    columns: dict[str, object] = {
        "session": pa.array([f"crowd-{one:07d}" for one in range(sessions)]),
        "protocol": pa.array(["udpc", "mrp", "rup", "pydevts"] * (sessions // 4)),
        "point": pa.array([""] * sessions),
        "caller": pa.array(["10.1.2.3"] * sessions),
        "callee": pa.array(["192.0.2.1"] * sessions),
        "ending": pa.array(["closed"] * sessions),
        "from_start": pa.array([True] * sessions),
        "first": START_US + number * 1_000,
        "last": START_US + number * 1_000 + 5_000_000,
        "retransmission_ratio": ratio,
        "violations": [0] * sessions,
    }
    kinds = arrow_schema(SESSIONS)
    arrays = [
        pa.array(columns[column.name]).cast(column.type)
        if column.name in columns
        else pa.array(number % 50).cast(column.type)
        if pa.types.is_integer(column.type)
        else pa.nulls(sessions, column.type)
        for column in kinds
    ]
    return pa.Table.from_arrays(arrays, schema=kinds)
