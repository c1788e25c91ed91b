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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.core.errors import BadOption
from fairway.core.tables import PROTOCOLS
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, Words, count, least, mixed, most
from fairway.protocols import NAMES
from fairway.protocols.udpc import wire as udpc

PortMap = Mapping[int, str]
"""The protocol that is used on a port."""

RECOGNISED = (*PROTOCOLS, "dtls", "unknown")
DTLS, UNKNOWN = range(len(PROTOCOLS), len(RECOGNISED))
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
_KINDS = {
    name: [udpc.KINDS.index(kind) for kind in kinds]
    for name, kinds in (
        ("plain", ("plain",)),
        ("beats", ("heartbeat", "heartbeat_ack")),
        ("once", ("syn", "syn_ack", "fin")),
    )
}
_MANY = re.compile(r"2(2[4-9]|3\d)\.|.*\.255$|ff")
"""Addresses of many hosts: multicast, and those that are nearly always a broadcast."""
STEP_MAX = 4
"""How much further a direction's indices may spread than there are datagrams: the capture may lack some."""
RESTORE_STEP = 65_536
"""An endpoint jumps so far when it is restored."""
HALF_TURN = 1 << 31
"""An index has 32 bits."""
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_LAST = np.uint64(np.iinfo(np.uint64).max)


class Recognised(NamedTuple):
    """What each row is recognised as, by indices in `RECOGNISED` and `EVIDENCE`."""

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


def recognised(rows: Rows, forward: Mask, port_map: PortMap, known: Recognised | None = None) -> Recognised:
    """Return what every row of `DATAGRAMS` speaks; the rows hold all there is of their flows, or their flow is known.

    `forward` is a direction that the two ends of a flow agree on.
    """
    whole = ~rows.missing(rows.unit)
    protocol = np.full(len(rows), UNKNOWN, dtype=np.int16)
    evidence = np.full(len(rows), MISSING, dtype=np.int16)
    if not whole.any():
        return Recognised(protocol, evidence)
    flows, flow = np.unique(rows.numbers(rows.unit)[whole], return_inverse=True)
    verdict, proof = known or verdicts(observed(rows, whole, flow, len(flows), forward))
    protocol[whole], evidence[whole] = verdict[flow], proof[flow]
    mapped = protocols_by_port(rows, port_map)
    named = whole & (mapped != MISSING)
    protocol[named], evidence[named] = mapped[named], EVIDENCE.index("port map")
    return Recognised(protocol, evidence)


@dataclass(frozen=True)
class Evidence:
    """What the datagrams of each flow add up to; what parts of them add up to can be added."""

    sums: Mapping[str, Integers]
    lows: Mapping[str, Integers]
    """The least of numbers; the greatest that there is where there are none."""
    highs: Mapping[str, Integers]
    asking: Sequence[Words]
    """The udpc datagrams that ask for an acknowledgement, each as a word."""
    named: Sequence[Words]
    """What acknowledgements name, as such words."""
    naming: Sequence[Integers]
    """The flows of these."""

    def plus(self, other: Evidence) -> Evidence:
        """Return what both add up to."""
        return Evidence(
            {name: one + other.sums[name] for name, one in self.sums.items()},
            {name: np.minimum(one, other.lows[name]) for name, one in self.lows.items()},
            {name: np.maximum(one, other.highs[name]) for name, one in self.highs.items()},
            [*self.asking, *other.asking],
            [*self.named, *other.named],
            [*self.naming, *other.naming],
        )

    def spread(self, name: str) -> Integers:
        """Return how far the numbers of each flow lie apart, on the shorter way round: they wrap."""
        ways = (name, f"{name}, turned")
        spreads = [np.where(self.has(way), self.highs[way] - self.lows[way], 0) for way in ways]
        return np.minimum(*spreads)

    def has(self, name: str) -> Mask:
        """Return which flows have such a number."""
        some: Mask = self.lows[name] <= self.highs[name]
        return some

    def is_one(self, name: str) -> Mask:
        """Return which flows have one such number only."""
        one: Mask = self.lows[name] == self.highs[name]
        return one


def observed(rows: Rows, whole: Mask, flow: Integers, flows: int, forward: Mask) -> Evidence:
    """Return what rows of `DATAGRAMS` add up to; `whole` are those that have a flow, and `flow` is theirs."""
    proved = rows.codes("pydevts_kind", ("packet",)) != MISSING
    proved &= (rows.numbers("payload_bytes") > 8) & ~rows.missing("pydevts_body_crc")
    proved &= rows.numbers("pydevts_body_crc") == rows.numbers("pydevts_crc")
    good = {name: rows.codes(f"{name}_kind", ("malformed",))[whole] == MISSING for name in PROTOCOLS}
    good |= {"dtls": rows.flags("dtls")[whole], "proved": proved[whole], "all": np.ones(len(flow), dtype=bool)}
    sums = {name: count(flow, mask, flows) for name, mask in good.items()}
    indices, flow = np.flatnonzero(whole)[good["udpc"]], flow[good["udpc"]]
    kind, out = rows.codes("udpc_kind", udpc.KINDS)[indices], forward[indices]
    index, ack = rows.numbers("udpc_index")[indices], rows.numbers("udpc_ack")[indices]
    destination, texts = rows.texts("destination")
    many = np.array([_MANY.match(text) is not None for text in texts], dtype=bool)
    asking = np.array([_ASKED.get(name, NOTHING) for name in udpc.KINDS])[kind]
    answering = np.array([_ANSWERED.get(name, NOTHING) for name in udpc.KINDS])[kind]
    asks, answers = asking != NOTHING, answering != NOTHING
    told = {
        "out": out,
        "back": ~out,
        "many": many[destination[indices]],
        "idle": rows.flags("udpc_idle_ack")[indices],
        "answers": answers,
        "answers to nothing": answers & (ack == 0),
        **{name: np.isin(kind, kinds) for name, kinds in _KINDS.items()},
    }
    bounded = {
        "session": (rows.numbers("udpc_session")[indices], np.ones(len(indices), dtype=bool)),
        "called": (index, kind == udpc.KINDS.index("syn")),
        "answered": (ack, kind == udpc.KINDS.index("syn_ack")),
    }
    for name, (numbers, which) in {"out": (index, out), "back": (index, ~out), "named": (ack, answers)}.items():
        bounded |= {name: (numbers, which), f"{name}, turned": ((numbers + HALF_TURN) % (2 * HALF_TURN), which)}
    return Evidence(
        sums | {name: count(flow, mask, flows) for name, mask in told.items()},
        {name: least(flow[which], numbers[which], flows, _HIGHEST) for name, (numbers, which) in bounded.items()},
        {name: most(flow[which], numbers[which], flows, _LOWEST) for name, (numbers, which) in bounded.items()},
        [mixed(flow, out, asking, index)[asks]],
        [mixed(flow, ~out, answering, ack)[answers]],
        [flow[answers]],
    )


def verdicts(found: Evidence) -> Recognised:
    """Return the protocol and the evidence of each flow whose content is conclusive."""
    shaken = found.has("called") & (
        (found.lows["called"] == found.lows["answered"]) | (found.highs["called"] == found.highs["answered"])
    )
    names = (*PROTOCOLS, "dtls")
    proofs = {name: found.sums[name] for name in names} | {
        "udpc": np.where(shaken | _is_session(found), found.sums["udpc"], 0),
        "pydevts": found.sums["proved"],
    }
    table = np.stack([np.where(2 * found.sums[name] >= found.sums["all"], proofs[name], 0) for name in names])
    best = table.max(axis=0)
    clear = (best > 0) & ((table == best).sum(axis=0) == 1)
    verdict = np.where(clear, table.argmax(axis=0), UNKNOWN).astype(np.int16)
    evidence: Codes = np.array([EVIDENCE.index(_EVIDENCE_OF[name]) for name in names] + [MISSING], np.int16)[verdict]
    evidence[(verdict == PROTOCOLS.index("udpc")) & shaken] = EVIDENCE.index("handshake")
    return Recognised(verdict, evidence)


def _is_session(found: Evidence) -> Mask:
    """Return which flows are one session of udpc's, as far as one can tell without its handshake."""
    good, answers = found.sums["udpc"], found.sums["answers"]
    # One sessionID, and indices that advance with the datagrams.
    steady: Mask = (good >= np.maximum(SESSION_DATAGRAMS_MIN, WELL_FORMED_MIN * found.sums["all"])) & found.is_one(
        "session"
    )
    for side in ("out", "back"):
        spread, sent = found.spread(side), STEP_MAX * found.sums[side] + STEP_MAX
        steady &= (spread <= sent) | ((spread >= RESTORE_STEP) & (spread <= RESTORE_STEP + sent))
    steady &= (found.spread("out") > 0) | (found.spread("back") > 0)
    # From one host to another; and what they acknowledge is said only where they do.
    steady &= (found.sums["many"] == 0) & (found.sums["idle"] <= (1 - WELL_FORMED_MIN) * good)
    # An acknowledgement of nothing, or always of the same, is none.
    steady &= ((answers < SESSION_DATAGRAMS_MIN) | (found.spread("named") > 0)) & (
        found.sums["answers to nothing"] == 0
    )
    if not steady.any():
        return steady
    # Sorted once: `np.isin` would sort all of them again with each part.
    asking = np.append(np.concatenate(found.asking), _LAST)
    asking.sort()
    known = np.zeros(len(good), dtype=np.int64)
    for flow, named in zip(found.naming, found.named, strict=True):
        known += count(flow, asking[np.searchsorted(asking, named)] == named, len(good))
    answered = (answers > 0) & (known >= ANSWERING_MIN * answers)
    both = (found.sums["out"] > 0) & (found.sums["back"] > 0)
    session: Mask = steady & np.where(both, answered, _alone(found))
    return session


def _alone(found: Evidence) -> Mask:
    """Return which flows, captured in one direction, do what only a udpc endpoint does."""
    good, beats = found.sums["udpc"], found.sums["beats"]
    telling = (good - found.sums["plain"] >= TELLING_MIN * good) | (beats > 1)
    alone: Mask = telling & (beats < good) & (2 * found.sums["once"] <= good)
    alone &= found.spread("named") <= ANSWERS_STEP_MAX * found.sums["answers"] + ANSWERS_STEP_MAX
    return alone


def protocols_by_port(rows: Rows, port_map: PortMap) -> Codes:
    """Return the protocol that the map names for each row's ports; -1 for none, and where the two ports disagree."""
    known = np.full(65_536, MISSING, dtype=np.int16)
    for port, name in port_map.items():
        known[port] = PROTOCOLS.index(name)
    source, destination = known[rows.numbers("source_port")], known[rows.numbers("destination_port")]
    agreed = np.where(source == MISSING, destination, source)
    disagree = (source != MISSING) & (destination != MISSING) & (source != destination)
    mapped: Codes = np.where(disagree, MISSING, agreed).astype(np.int16)
    return mapped
