"""Which protocol a flow speaks: by port map, or by what only one protocol writes. What is not conclusive is `unknown`.

    port map   one of the flow's ports was named by the user
    magic      mrp: datagrams that start with its magic and have a known type and size
    hex id     rup: a letter, 32 hexadecimal digits and numbers in base 255
    crc        pydevts: a packet whose field is the CRC-32 of its body
    handshake  udpc: a SYN and a SYN+ACK that answers it
    session    udpc: one sessionID in every datagram, in each direction an index that advances with them, flags that
               only udpc sets together, and a peer whose acknowledgements name what was sent
    records    dtls: datagrams that begin with a whole record of DTLS 1.0 or 1.2; what is inside is not known

A verdict is a function of all datagrams of the flow, whichever file or point they come from, so the order of files does
not matter. At least half of a flow must be well-formed in the protocol that is named, and of two protocols with
evidence the one with more conclusive datagrams is taken: a forged datagram changes nothing. A tie is `unknown`.

A field that stays and one that grows are common: `session` must explain what the whole flow does, so it asks for more.
Nearly all of the flow is well-formed. Something is not plain, as a zero is where udpc's flag is in many protocols; what
carries no acknowledgement has no ackIndex. If both directions were captured, one answers the other. Nothing goes to
many at once. The rest is for the port map: a session of which one side was captured, with plain messages only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.core.errors import BadOption
from fairway.core.tables import PROTOCOLS
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, count, least, mixed, most
from fairway.protocols import NAMES
from fairway.protocols.udpc import wire as udpc

PortMap = Mapping[int, str]
"""The protocol that is spoken on a port."""

SPOKEN = (*PROTOCOLS, "dtls", "unknown")
DTLS, UNKNOWN = range(len(PROTOCOLS), len(SPOKEN))
EVIDENCE = ("port map", "magic", "hex id", "crc", "handshake", "session", "records")
_EVIDENCE_OF = {"udpc": "session", "mrp": "magic", "rup": "hex id", "pydevts": "crc", "dtls": "records"}

SESSION_DATAGRAMS_MIN = 8
"""A sessionID that does not change proves nothing in fewer."""
WELL_FORMED_MIN = 0.8
"""The share of a flow that a session explains; the rest may have been damaged on the way."""
TELLING_MIN = 1 / 64
"""The share of a session, of which one side was captured, that is not plain; or there are heartbeats."""
ANSWERING_MIN = 0.2
"""The share of acknowledgements that name a datagram that the capture holds; it may lack many."""
ANSWERS_STEP_MAX = 16
"""The same for what acknowledgements name: not all that is sent asks for one."""
NOTHING = -1
_IMPORTANT, _REQUEST, _BEAT, _CALL = range(4)
_ASKED = {"important": _IMPORTANT, "request": _REQUEST, "answering_request": _REQUEST, "heartbeat": _BEAT, "syn": _CALL}
_ANSWERED = {
    "important_ack": _IMPORTANT,
    "response": _REQUEST,
    "answering_request": _REQUEST,
    "heartbeat_ack": _BEAT,
    "syn_ack": _CALL,
}
"""What asks for an acknowledgement, and what gives one."""
_PLAIN, _BEATS, _ONCE = (
    [udpc.KINDS.index(kind) for kind in kinds]
    for kinds in (("plain",), ("heartbeat", "heartbeat_ack"), ("syn", "syn_ack", "fin"))
)
_MANY = re.compile(r"2(2[4-9]|3\d)\.|.*\.255$|ff")
"""Addresses of many hosts: multicast, and those that are nearly always a broadcast."""
STEP_MAX = 4
"""How much further a direction's indices may spread than there are datagrams: the capture may lack some."""
RESTORE_STEP = 65_536
"""An endpoint jumps so far when it is restored."""
HALF_TURN = 1 << 31
"""An index has 32 bits."""


class Recognised(NamedTuple):
    """What each row speaks, as places in `SPOKEN` and `EVIDENCE`."""

    protocol: Codes
    evidence: Codes


def parsed_port_map(entries: Iterable[str]) -> dict[int, str]:
    """Return the port map that entries such as `udpc=9000` describe."""
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
    """Return what every row of `DATAGRAMS` speaks; the rows hold all there is of their flows.

    `forward` is a direction that the two ends of a flow agree on.
    """
    whole = ~rows.missing("flow")
    protocol = np.full(len(rows), UNKNOWN, dtype=np.int16)
    evidence = np.full(len(rows), MISSING, dtype=np.int16)
    if not whole.any():
        return Recognised(protocol, evidence)
    flows, flow = np.unique(rows.numbers("flow")[whole], return_inverse=True)
    verdict, proof = _verdicts(rows, whole, flow, len(flows), forward)
    protocol[whole], evidence[whole] = verdict[flow], proof[flow]
    mapped = spoken_on_ports(rows, port_map)
    named = whole & (mapped != MISSING)
    protocol[named], evidence[named] = mapped[named], EVIDENCE.index("port map")
    return Recognised(protocol, evidence)


def _verdicts(rows: Rows, whole: Mask, flow: Integers, flows: int, forward: Mask) -> tuple[Codes, Codes]:
    """Return the protocol and the evidence of each flow whose content is conclusive."""
    good = {name: rows.codes(f"{name}_kind", ("malformed",))[whole] == MISSING for name in PROTOCOLS}
    good["dtls"] = rows.flags("dtls")[whole]
    counts = {name: count(flow, mask, flows) for name, mask in good.items()}
    handshake = _handshake(rows, whole, flow, flows)
    in_session = handshake | _Udpc(rows, whole, flow, flows, forward).in_session(~handshake)
    proved = rows.codes("pydevts_kind", ("packet",)) != MISSING
    proved &= (rows.numbers("payload_bytes") > 8) & ~rows.missing("pydevts_body_crc")
    proved &= rows.numbers("pydevts_body_crc") == rows.numbers("pydevts_crc")
    proofs = counts | {
        "udpc": np.where(in_session, counts["udpc"], 0),
        "pydevts": count(flow, proved[whole], flows),
    }
    datagrams = np.bincount(flow, minlength=flows)
    table = np.stack([np.where(2 * counts[name] >= datagrams, proofs[name], 0) for name in counts])
    best = table.max(axis=0)
    clear = (best > 0) & ((table == best).sum(axis=0) == 1)
    verdict = np.where(clear, table.argmax(axis=0), UNKNOWN).astype(np.int16)
    named = np.array([EVIDENCE.index(_EVIDENCE_OF[name]) for name in counts] + [MISSING], np.int16)
    evidence: Codes = named[verdict]
    evidence[(verdict == PROTOCOLS.index("udpc")) & handshake] = EVIDENCE.index("handshake")
    return verdict, evidence


def _handshake(rows: Rows, whole: Mask, flow: Integers, flows: int) -> Mask:
    """Return which flows hold a SYN and the SYN+ACK that answers it."""
    kind = rows.codes("udpc_kind", ("syn", "syn_ack"))[whole]
    calls, answers = kind == 0, kind == 1
    index, ack = rows.numbers("udpc_index")[whole], rows.numbers("udpc_ack")[whole]
    called = [find(flow[calls], index[calls], flows, -1) for find in (least, most)]
    answered = [find(flow[answers], ack[answers], flows, -2) for find in (least, most)]
    same: Mask = (called[0] == answered[0]) | (called[1] == answered[1])
    return same


class _Udpc:
    """The datagrams that can be read as udpc, and what each flow of them does."""

    def __init__(self, rows: Rows, whole: Mask, flow: Integers, flows: int, forward: Mask) -> None:
        """`whole` are the rows that have a flow, and `flow` is theirs."""
        kind = rows.codes("udpc_kind", udpc.KINDS)[whole]
        good = np.flatnonzero(kind)
        self._rows, self._flows, self._places = rows, flows, np.flatnonzero(whole)[good]
        self._flow, self._kind, self._out = flow[good], kind[good], forward[self._places]
        self._all, self._good = np.bincount(flow, minlength=flows), np.bincount(self._flow, minlength=flows)

    def in_session(self, wanted: Mask) -> Mask:
        """Return which of the wanted flows are one session."""
        found: Mask = wanted & (self._good >= np.maximum(SESSION_DATAGRAMS_MIN, WELL_FORMED_MIN * self._all))
        for step in (self._steady, self._one_to_one, self._answered):
            if found.any():
                self._look_at(found)
                found = found & step()
        return found

    def _look_at(self, flows: Mask) -> None:
        """Leave out all other flows."""
        left = flows[self._flow]
        self._flow, self._kind, self._out = self._flow[left], self._kind[left], self._out[left]
        self._places = self._places[left]

    def _steady(self) -> Mask:
        """Return which flows have one sessionID, and indices that advance with the datagrams."""
        session, index = self._numbers("udpc_session"), self._numbers("udpc_index")
        steady: Mask = least(self._flow, session, self._flows, -1) == most(self._flow, session, self._flows, -2)
        advances = np.zeros(self._flows, dtype=bool)
        for side in (self._out, ~self._out):
            spread, sent = self._spread(index, side), STEP_MAX * self._count(side) + STEP_MAX
            advances |= spread > 0
            steady &= (spread <= sent) | ((spread >= RESTORE_STEP) & (spread <= RESTORE_STEP + sent))
        return steady & advances

    def _one_to_one(self) -> Mask:
        """Return which flows go from one host to another, and say what they acknowledge only where they do."""
        destination, texts = self._rows.texts("destination")
        many: Mask = np.array([_MANY.match(text) is not None for text in texts], dtype=bool)
        idle = self._count(self._rows.flags("udpc_idle_ack")[self._places])
        found: Mask = (self._count(many[destination[self._places]]) == 0) & (idle <= (1 - WELL_FORMED_MIN) * self._good)
        return found

    def _answered(self) -> Mask:
        """Return which flows have acknowledgements that name what the other side sent; of one side alone, that may."""
        index, ack = self._numbers("udpc_index"), self._numbers("udpc_ack")
        asking = np.array([*(_ASKED.get(kind, NOTHING) for kind in udpc.KINDS), NOTHING])[self._kind]
        answering = np.array([*(_ANSWERED.get(kind, NOTHING) for kind in udpc.KINDS), NOTHING])[self._kind]
        asks, answers = asking != NOTHING, answering != NOTHING
        count, spread = self._count(answers), self._spread(ack, answers)
        sent = mixed(self._flow, self._out, asking, index)[asks]
        named = np.isin(mixed(self._flow, ~self._out, answering, ack), sent) & answers
        both = (self._count(self._out) > 0) & (self._count(~self._out) > 0)
        answered = np.where(
            both, (count > 0) & (self._count(named) >= ANSWERING_MIN * count), self._alone(spread, count)
        )
        # An acknowledgement of nothing, or always of the same, is none.
        varied = (count < SESSION_DATAGRAMS_MIN) | (spread > 0)
        found: Mask = answered & varied & (self._count(answers & (ack == 0)) == 0)
        return found

    def _alone(self, spread: Integers, answers: Integers) -> Mask:
        """Return which flows, captured in one direction, do what only a udpc endpoint does."""
        plain, beats, once = (self._count(np.isin(self._kind, kinds)) for kinds in (_PLAIN, _BEATS, _ONCE))
        telling = (self._good - plain >= TELLING_MIN * self._good) | (beats > 1)
        found: Mask = telling & (beats < self._good) & (2 * once <= self._good)
        return found & (spread <= ANSWERS_STEP_MAX * answers + ANSWERS_STEP_MAX)

    def _numbers(self, name: str) -> Integers:
        return self._rows.numbers(name)[self._places]

    def _count(self, which: Mask) -> Integers:
        return count(self._flow, which, self._flows)

    def _spread(self, numbers: Integers, which: Mask) -> Integers:
        """Return how far the numbers of each flow lie apart, on the shorter way round: they wrap."""
        groups, chosen = self._flow[which], numbers[which]
        ways = (chosen, (chosen + HALF_TURN) % (2 * HALF_TURN))
        one, other = (most(groups, way, self._flows, 0) - least(groups, way, self._flows, 0) for way in ways)
        spread: Integers = np.minimum(one, other)
        return spread


def spoken_on_ports(rows: Rows, port_map: PortMap) -> Codes:
    """Return the protocol that the map names for each row's ports; -1 for none, and where the two ports disagree."""
    known = np.full(65_536, MISSING, dtype=np.int16)
    for port, name in port_map.items():
        known[port] = PROTOCOLS.index(name)
    source, destination = known[rows.numbers("source_port")], known[rows.numbers("destination_port")]
    agreed = np.where(source == MISSING, destination, source)
    disagree = (source != MISSING) & (destination != MISSING) & (source != destination)
    mapped: Codes = np.where(disagree, MISSING, agreed).astype(np.int16)
    return mapped
