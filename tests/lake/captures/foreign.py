"""Traffic of other protocols, made from their formats: nobody may take it for one of the four.

Each maker returns the datagrams of one flow, the first from its client. What they have in common with udpc is a field
that stays and one that grows, at the places of the sessionID and the index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from fairway.protocols.udpc.wire import KIND_OF_FLAG

Datagrams = list[tuple[bool, bytes]]
Maker = Callable[[Random], Datagrams]


def _asked(requests: list[bytes], responses: list[bytes]) -> Datagrams:
    return [one for pair in zip(requests, responses, strict=True) for one in zip((True, False), pair, strict=True)]


def rpc(chance: Random) -> Datagrams:
    """ONC RPC, as NFSv2 and v3 use it: a transaction id that grows, and in every reply the same words behind it."""
    first, program = chance.randrange(1 << 32), chance.choice([100_003, 100_000, 100_005])
    xids = [(first + number) % (1 << 32) for number in range(chance.randrange(4, 60))]
    call = [struct.pack("!6I", xid, 0, 2, program, chance.choice([2, 3]), chance.randrange(22)) for xid in xids]
    reply = [struct.pack("!6I", xid, 1, 0, 0, 0, 0) + chance.randbytes(4 * chance.randrange(40)) for xid in xids]
    return chance.choice([_asked([one + bytes(16) for one in call], reply), [(False, one) for one in reply]])


def sflow(chance: Random) -> Datagrams:
    """sFlow: a version, an agent's address, and a sequence that grows."""
    agent, version = chance.randrange(1 << 32), chance.choice([2, 4, 5])
    sequence, uptime = chance.randrange(1 << 20), chance.randrange(1 << 30)
    words = (version, 1, agent) if version < 5 else (version, 1, agent, 0)
    return [
        (True, struct.pack(f"!{len(words) + 3}I", *words, sequence + n, uptime + 997 * n, 1) + chance.randbytes(120))
        for n in range(chance.randrange(9, 60))
    ]


def bfd(chance: Random) -> Datagrams:
    """BFD with a keyed digest: two discriminators that stay, and a sequence of the authentication that grows."""
    ours, theirs = chance.randrange(1, 1 << 32), chance.randrange(1, 1 << 32)
    found: Datagrams = []
    for number in range(chance.randrange(9, 80)):
        out = bool(number % 2)
        one, other = (ours, theirs) if out else (theirs, ours)
        head = bytes([0x20, chance.choice([0xC4, 0xC4, 0xD4, 0xE4]), 3 + number // 40, 48])
        timers = struct.pack("!3I", 300_000, 300_000, chance.choice([0, 50_000]))
        digest = struct.pack("!4BI", 2, 24, 1, 0, number) + chance.randbytes(16)
        found.append((out, head + struct.pack("!2I", one, other) + timers + digest))
    return found


def dns(chance: Random) -> Datagrams:
    """DNS from one port: the length of a name's first label stands where udpc has its flag."""
    label = chance.choice([1, 2, 3, 6, 7, 16, chance.randrange(1, 60)])
    first = chance.randrange(1 << 16)
    ids = [(first + n) % (1 << 16) for n in range(chance.randrange(8, 40))]
    name = bytes([label]) + b"n" * label + b"\7example\3com\0\0\1\0\1"
    query = [struct.pack("!6H", one, 0x0100, 1, 0, 0, 0) + name for one in ids]
    answer = [struct.pack("!6H", one, 0x8180, 1, 1, 0, 0) + name + chance.randbytes(16) for one in ids]
    return chance.choice([_asked(query, answer), [(True, one) for one in query]])


def quic(chance: Random) -> Datagrams:
    """QUIC: a connection id behind the first byte, and everything else encrypted."""
    id_ = chance.randbytes(8)
    found: Datagrams = []
    for _ in range(60):
        out, first = chance.random() < 0.4, bytes([0x40 | chance.randrange(64)])
        found.append((out, first + id_ + chance.randbytes(chance.randrange(20, 1_200))))
    return found


def stun(chance: Random) -> Datagrams:
    """STUN: its magic cookie stands where udpc has its sessionID."""
    ids = [chance.randbytes(12) for _ in range(chance.randrange(8, 40))]
    request = [struct.pack("!HHI", 1, 4 * n % 28, 0x2112A442) + one + bytes(4 * n % 28) for n, one in enumerate(ids)]
    response = [struct.pack("!HHI", 0x101, 12, 0x2112A442) + one + bytes(12) for one in ids]
    return _asked(request, response)


def rtp(chance: Random) -> Datagrams:
    """RTP: a sequence that grows, a time that may stand still over a frame, and a source that stays."""
    sequence, time, source = chance.randrange(1 << 16), chance.randrange(1 << 32), chance.randrange(1 << 32)
    step = chance.choice([0, 160, 3_000])
    body = bytes([chance.choice([*KIND_OF_FLAG, chance.randrange(256)])])
    found: Datagrams = []
    for n in range(chance.randrange(10, 90)):
        head = struct.pack("!BBHII", 0x80, 96, (sequence + n) % (1 << 16), (time + n * step) % (1 << 32), source)
        found.append((True, head + body + chance.randbytes(100)))
    return found


def sip(chance: Random) -> Datagrams:
    """SIP: text."""
    call = chance.randrange(10**9)
    requests = [
        f"{verb} sip:a@example.com SIP/2.0\r\nCall-ID: {call}\r\nCSeq: {n} {verb}\r\n\r\n".encode()
        for n, verb in enumerate(["REGISTER", "OPTIONS"] * 10)
    ]
    return _asked(requests, [b"SIP/2.0 200 OK\r\n" + one for one in requests])


def netbios(chance: Random) -> Datagrams:
    """NetBIOS datagrams: an id that grows, and the sender's address."""
    first, source = chance.randrange(1 << 15), chance.randbytes(4)
    behind = source + struct.pack("!HHH", 138, 187, 0) + b" EEEFFDEL" + bytes(60)
    return [(True, bytes([0x11, 0x02]) + (first + n).to_bytes(2) + behind) for n in range(chance.randrange(8, 40))]


def uftp(chance: Random) -> Datagrams:
    """UFTP: a version and a function, a sequence that grows, ids that stay, and a group that is sent to."""
    source, group = chance.randbytes(4), chance.randbytes(4)
    function = chance.choice([8, 9, 1, 2])
    found: Datagrams = []
    for n in range(chance.randrange(10, 90)):
        out, head = chance.random() < 0.9, bytes([0x50, function]) + n.to_bytes(2) + source + group
        found.append((out, head + bytes([chance.choice([0, 1, 2]), 0, 0, 0]) + chance.randbytes(200)))
    return found


def fields(chance: Random) -> Datagrams:
    """Words that stay, grow by one, grow by much or are zero; where udpc has its flag, too.

    Left out is what udpc writes byte for byte: a flag that does not acknowledge before a word that is zero, or one that
    does before a word that grows by one.
    """
    flag = chance.choice([0, 0, 0, *KIND_OF_FLAG, chance.randrange(256)])
    starts = [chance.randrange(1, 1 << 32) for _ in range(3)]
    steps = [chance.choice([1, 1, 1, 2, 10, 1_000, 65_536]), 0, chance.choice([0, 0, 160, 10**6])]
    starts[2] = chance.choice([starts[2], starts[0], *([0] if not flag else [])])
    both, size = chance.random() < 0.5, chance.choice([0, 0, 40, 300])
    found: Datagrams = []
    for number in range(chance.randrange(8, 120)):
        words = [(start + number * step) % (1 << 32) for start, step in zip(starts, steps, strict=True)]
        body = chance.randbytes(chance.randrange(size)) if size else b""
        found.append((not both or number % 2 == 0, struct.pack("!3I", *words) + bytes([flag]) + body))
    return found


def noise(chance: Random) -> Datagrams:
    """Random bytes."""
    return [(chance.random() < 0.5, chance.randbytes(chance.randrange(60))) for _ in range(60)]


MAKERS: dict[str, Maker] = {
    maker.__name__: maker for maker in (rpc, sflow, bfd, dns, quic, stun, rtp, sip, netbios, uftp, fields, noise)
}
