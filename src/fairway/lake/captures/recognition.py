"""Which protocol a flow speaks: by port map, or by what only one protocol writes. What is not conclusive is `unknown`.

    port map   one of the flow's ports was named by the user
    magic      mrp: datagrams that start with its magic and have a known type and size
    hex id     rup: a letter, 32 hexadecimal digits and numbers in base 255
    crc        pydevts: a packet whose field is the CRC-32 of its body
    handshake  udpc: a SYN and a SYN+ACK that answers it
    session    udpc: one sessionID in every datagram, and in each direction an index that advances with them

A verdict is a function of all datagrams of the flow, whichever file or point they come from, so the order of files does
not matter. At least half of a flow must be well-formed in the protocol that is named, and of two protocols with
evidence the one with more conclusive datagrams is taken: a forged datagram changes nothing. A tie is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.core.errors import BadOption
from fairway.core.tables import PROTOCOLS
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, count, least, most
from fairway.protocols import NAMES

PortMap = Mapping[int, str]
"""The protocol that is spoken on a port."""

UNKNOWN = len(PROTOCOLS)
SPOKEN = (*PROTOCOLS, "unknown")
EVIDENCE = ("port map", "magic", "hex id", "crc", "handshake", "session")
_EVIDENCE_OF = {"mrp": "magic", "rup": "hex id", "pydevts": "crc"}

SESSION_DATAGRAMS_MIN = 8
"""A sessionID that does not change proves nothing in fewer."""
INDEX_SPREAD_MAX = 65_536
"""How far a direction's indices may spread beyond the number of its datagrams: an endpoint jumps so far on restore."""


class Recognised(NamedTuple):
    """What each row speaks, as places in `SPOKEN` and `EVIDENCE`."""

    protocol: Codes
    evidence: Codes


def parsed_port_map(entries: Iterable[str]) -> dict[int, str]:
    """Gives the port map that entries such as `udpc=9000` describe."""
    ports: dict[int, str] = {}
    for entry in entries:
        name, _, port = entry.partition("=")
        if name not in NAMES or not port.isdigit() or not 0 < int(port) < 65_536:
            raise BadOption(f"{entry!r} names no port; it must be a protocol and a port, such as udpc=9000")
        if ports.get(int(port), name) != name:
            raise BadOption(f"port {port} is given to {ports[int(port)]} and to {name}; it can have one protocol")
        ports[int(port)] = name
    return ports


def recognised(rows: Rows, forward: Mask, port_map: PortMap) -> Recognised:
    """Gives what every row of `DATAGRAMS` speaks; the rows hold all there is of their flows.

    `forward` is a direction that the two ends of a flow agree on.
    """
    whole = ~rows.missing("flow")
    protocol = np.full(len(rows), UNKNOWN, dtype=np.int16)
    evidence = np.full(len(rows), MISSING, dtype=np.int16)
    if not whole.any():
        return Recognised(protocol, evidence)
    flows, flow = np.unique(rows.numbers("flow")[whole], return_inverse=True)
    verdict, proof = _verdicts(rows, whole, flow, len(flows), forward[whole])
    protocol[whole], evidence[whole] = verdict[flow], proof[flow]
    mapped = _mapped(rows, port_map)
    named = whole & (mapped != MISSING)
    protocol[named], evidence[named] = mapped[named], EVIDENCE.index("port map")
    return Recognised(protocol, evidence)


def _verdicts(rows: Rows, whole: Mask, flow: Integers, flows: int, forward: Mask) -> tuple[Codes, Codes]:
    """Gives the protocol and the evidence of each flow whose content is conclusive."""
    good = {name: rows.codes(f"{name}_kind", ("malformed",))[whole] == MISSING for name in PROTOCOLS}
    counts = {name: count(flow, mask, flows) for name, mask in good.items()}
    handshake = _handshake(rows, whole, flow, flows)
    in_session = handshake | _one_session(rows, whole, flow, flows, good["udpc"], forward)
    proved = rows.codes("pydevts_kind", ("packet",)) != MISSING
    proved &= (rows.numbers("payload_bytes") > 8) & ~rows.missing("pydevts_body_crc")
    proved &= rows.numbers("pydevts_body_crc") == rows.numbers("pydevts_crc")
    proofs = counts | {
        "udpc": np.where(in_session, counts["udpc"], 0),
        "pydevts": count(flow, proved[whole], flows),
    }
    datagrams = np.bincount(flow, minlength=flows)
    table = np.stack([np.where(2 * counts[name] >= datagrams, proofs[name], 0) for name in PROTOCOLS])
    best = table.max(axis=0)
    clear = (best > 0) & ((table == best).sum(axis=0) == 1)
    verdict = np.where(clear, table.argmax(axis=0), UNKNOWN).astype(np.int16)
    named = np.array([EVIDENCE.index(_EVIDENCE_OF.get(name, "session")) for name in PROTOCOLS] + [MISSING], np.int16)
    evidence: Codes = named[verdict]
    evidence[(verdict == PROTOCOLS.index("udpc")) & handshake] = EVIDENCE.index("handshake")
    return verdict, evidence


def _handshake(rows: Rows, whole: Mask, flow: Integers, flows: int) -> Mask:
    """Tells which flows hold a SYN and the SYN+ACK that answers it."""
    kind = rows.codes("udpc_kind", ("syn", "syn_ack"))[whole]
    calls, answers = kind == 0, kind == 1
    index, ack = rows.numbers("udpc_index")[whole], rows.numbers("udpc_ack")[whole]
    called = [find(flow[calls], index[calls], flows, -1) for find in (least, most)]
    answered = [find(flow[answers], ack[answers], flows, -2) for find in (least, most)]
    same: Mask = (called[0] == answered[0]) | (called[1] == answered[1])
    return same


def _one_session(rows: Rows, whole: Mask, flow: Integers, flows: int, good: Mask, forward: Mask) -> Mask:
    """Tells which flows have one sessionID in all datagrams, and indices that advance with them."""
    session, index = rows.numbers("udpc_session")[whole][good], rows.numbers("udpc_index")[whole][good]
    flow, out = flow[good], forward[good]
    same: Mask = least(flow, session, flows, -1) == most(flow, session, flows, -2)
    advances = np.zeros(flows, dtype=bool)
    steady = same & (np.bincount(flow, minlength=flows) >= SESSION_DATAGRAMS_MIN)
    for side in (out, ~out):
        spread = most(flow[side], index[side], flows, 0) - least(flow[side], index[side], flows, 0)
        advances |= spread > 0
        steady &= spread <= count(flow, side, flows) + INDEX_SPREAD_MAX
    found: Mask = steady & advances
    return found


def _mapped(rows: Rows, port_map: PortMap) -> Codes:
    """Gives the protocol that the map names for a row's ports; none where the two ports disagree."""
    known = np.full(65_536, MISSING, dtype=np.int16)
    for port, name in port_map.items():
        known[port] = PROTOCOLS.index(name)
    source, destination = known[rows.numbers("source_port")], known[rows.numbers("destination_port")]
    agreed = np.where(source == MISSING, destination, source)
    disagree = (source != MISSING) & (destination != MISSING) & (source != destination)
    mapped: Codes = np.where(disagree, MISSING, agreed).astype(np.int16)
    return mapped


def spoken_on_ports(rows: Rows, port_map: PortMap) -> Codes:
    """Return the protocol that the map alone names for each row; -1 where it names none."""
    return _mapped(rows, port_map)
