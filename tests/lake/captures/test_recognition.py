"""A flow's protocol is named when its content or the port map is conclusive, and never otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from fairway.core.errors import BadOption
from fairway.lake.captures.recognition import parsed_port_map
from fairway.protocols import NAMES
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc
from tests.lake.analysis.tables import packets_table
from tests.lake.captures.reading import datagrams_of as read
from tests.lake.captures.traces import conversation, simulated

EVIDENCE = {"udpc": "handshake", "mrp": "magic", "rup": "hex id", "pydevts": "crc"}


def datagrams_of(folder: Path, captures: Iterable[bytes]) -> pa.Table:
    """The datagrams of several captures as one table."""
    paths = []
    for number, data in enumerate(captures):
        paths.append(folder / f"{number}.pcapng")
        paths[-1].write_bytes(data)
    return read(paths)


def packets_of(datagrams: pa.Table, ports: dict[int, str] | None = None) -> list[dict[str, Any]]:
    """What becomes of them, with the payload beside it."""
    payloads = {(row["file_id"], row["offset"]): row["payload"] for row in datagrams.to_pylist()}
    rows: list[dict[str, Any]] = packets_table(datagrams, ports).to_pylist()
    return [row | {"payload": payloads[row["file_id"], row["offset"]]} for row in rows]


def verdicts_of(rows: Iterable[dict[str, Any]]) -> dict[str, set[tuple[str, str | None]]]:
    """The protocol and evidence that each file's rows were given."""
    found: dict[str, set[tuple[str, str | None]]] = {}
    for row in rows:
        found.setdefault(row["file"], set()).add((row["protocol"], row["evidence"]))
    return found


def important(index: int, session: int = 9) -> bytes:
    return udpc.encode(udpc.Message(index=index, session_id=session, flag=udpc.IMP, body=b"x"))


def packet(number: int, body: bytes) -> bytes:
    return pydevts.encode(pydevts.Packet(success=0, message_id=number, crc=crc32(body), body=body))


def sealed(size: int) -> bytes:
    """Return a record of DTLS 1.2 with so many bytes behind its header."""
    return b"\x17\xfe\xfd\0\1" + bytes(6) + size.to_bytes(2, "big") + b"?" * size


def confirm(number: int) -> bytes:
    return rup.encode(rup.Confirm(id=f"{number:032x}", position=number))


def test_simulated_runs_of_the_four_are_recognised_with_their_evidence(tmp_path: Path) -> None:
    captures = [*(simulated(name) for name in NAMES), simulated("mrp", layout="piggyback")]
    found = [
        packets_of(datagrams_of(folder, [data]))
        for folder, data in zip(_folders(tmp_path, len(captures)), captures, strict=True)
    ]
    for name, rows in zip([*NAMES, "mrp"], found, strict=True):
        assert verdicts_of(rows) == {"0.pcapng": {(name, EVIDENCE[name])}}
    rows = found[0]
    assert all(_consistent(row) for row in rows)
    assert {row["kind"] for row in rows} >= {"syn", "syn_ack", "important", "important_ack"}


def _folders(folder: Path, count: int) -> list[Path]:
    folders = [folder / str(number) for number in range(count)]
    for one in folders:
        one.mkdir()
    return folders


def _consistent(row: dict[str, Any]) -> bool:
    """A udpc row has the size, checksum and bytes of its body, and no other protocol's fields."""
    if row["kind"] == "malformed":
        return row["reason"] is not None and row["body"] is None and row["body_crc"] is None
    body = row["payload"][13:]
    found = (row["body_bytes"], row["body_crc"], row["body"], row["reason"], row["pydevts_id"], row["rup_id"])
    return found == (len(body), crc32(body), body, None, None, None)


def test_what_is_not_conclusive_is_unknown(tmp_path: Path) -> None:
    """Each file is a flow of its own; what decides is in the comment."""
    handshake = [(True, udpc.encode(udpc.Control(index=77, session_id=5, flag=udpc.SYN)))]
    answer = udpc.encode(udpc.Control(index=1, session_id=9, ack_index=77, flag=udpc.SYN | udpc.ACK))
    stray = udpc.encode(udpc.Control(index=1, session_id=9, ack_index=78, flag=udpc.SYN | udpc.ACK))
    cases: list[tuple[list[tuple[bool, bytes]], tuple[str, str | None]]] = [
        ([*handshake, (False, answer)], ("udpc", "handshake")),
        ([*handshake, (False, stray)], ("unknown", None)),  # the answer is to another SYN
        ([(True, important(number + 1)) for number in range(8)], ("udpc", "session")),
        ([(True, important(number + 1)) for number in range(7)], ("unknown", None)),  # too few
        ([(True, important(3))] * 20, ("unknown", None)),  # an index that stands still proves nothing
        ([(True, important(number + 1, 9 + number % 2)) for number in range(20)], ("unknown", None)),  # two sessions
        ([(True, important(number * 10**6 + 1)) for number in range(20)], ("unknown", None)),  # an index that leaps
        ([(True, packet(1, b"hello"))], ("pydevts", "crc")),
        ([(True, packet(1, b"hello")[:-1] + b"?")], ("unknown", None)),  # its crc is wrong
        ([(True, packet(1, b""))], ("unknown", None)),  # eight bytes with a crc of nothing
        ([(True, confirm(1))], ("rup", "hex id")),
        ([(True, confirm(1)), (True, b"noise")], ("rup", "hex id")),
        ([(True, confirm(1)), (True, b"noise"), (True, b"more")], ("unknown", None)),  # most of it is not rup
        ([(True, confirm(1)), (True, packet(1, b"hello"))], ("unknown", None)),  # as much for one as for the other
        ([(True, sealed(40)), (False, sealed(60))], ("dtls", "records")),
        ([(True, sealed(40)), (False, sealed(60)[:-1])], ("dtls", "records")),  # half of it is whole
        ([(True, sealed(60)[:-1])], ("unknown", None)),  # the record does not end within the datagram
        ([(True, b"\x17\xfe\xfc" + sealed(60)[3:])], ("unknown", None)),  # of no version that there is
        ([(True, b"\x18" + sealed(60)[1:])], ("unknown", None)),  # of no type that there is
        ([(True, b"GET / HTTP/1.1")] * 9, ("unknown", None)),
        ([(True, b"")], ("unknown", None)),
    ]
    captures = [conversation(*datagrams, client=("10.0.1.1", 20_000 + n)) for n, (datagrams, _) in enumerate(cases)]
    found = verdicts_of(packets_of(datagrams_of(tmp_path, captures)))
    assert found == {f"{number}.pcapng": {verdict} for number, (_, verdict) in enumerate(cases)}


def test_the_port_map_goes_before_the_content_unless_it_contradicts_itself(tmp_path: Path) -> None:
    captures = [
        conversation((True, confirm(1)), client=("10.0.1.1", 1)),
        conversation((True, b"noise"), client=("10.0.1.1", 2)),
        conversation((True, confirm(1)), client=("10.0.1.1", 7_000)),
    ]
    found = packets_of(datagrams_of(tmp_path, captures), parsed_port_map(["udpc=9000", "mrp=7000"]))
    assert verdicts_of(found) == {
        "0.pcapng": {("udpc", "port map")},
        "1.pcapng": {("udpc", "port map")},
        "2.pcapng": {("rup", "hex id")},
    }
    reasons = {row["file"]: row["reason"] for row in found}
    assert reasons == {"0.pcapng": "bad_flag", "1.pcapng": "too_short", "2.pcapng": None}


def test_a_conversation_spread_over_files_is_recognised_as_one(tmp_path: Path) -> None:
    """The second file alone is not conclusive; together with the first it is, in either order."""
    first = conversation(*((True, important(number + 1)) for number in range(8)))
    second = conversation(*((True, important(number + 9)) for number in range(4)))
    for number, captures in enumerate(([first, second], [second, first])):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = verdicts_of(packets_of(datagrams_of(folder, captures)))
        assert set.union(*found.values()) == {("udpc", "session")}


@pytest.mark.parametrize("entry", ["udpc", "udpc=", "udpc=0", "udpc=65536", "tcp=80", "=80"])
def test_a_port_map_that_makes_no_sense_is_refused(entry: str) -> None:
    with pytest.raises(BadOption, match="udpc=9000"):
        parsed_port_map([entry])


def test_a_port_has_one_protocol() -> None:
    with pytest.raises(BadOption, match="can have one protocol"):
        parsed_port_map(["udpc=9000", "mrp=9000"])
    assert parsed_port_map(["udpc=9000", "mrp=8192", "udpc=9000"]) == {9000: "udpc", 8192: "mrp"}


def test_what_is_inside_dtls_stays_unread_but_its_sizes_and_times_are_known(tmp_path: Path) -> None:
    capture = conversation((True, sealed(40)), (False, sealed(60)), (True, confirm(1)))
    rows = packets_of(datagrams_of(tmp_path, [capture]))
    assert [(row["protocol"], row["kind"], row["reason"], row["session"], row["payload_bytes"]) for row in rows] == [
        ("dtls", None, "encrypted", None, size) for size in (53, 73, len(confirm(1)))
    ]
    assert all(row["at_ns"] is not None for row in rows)
