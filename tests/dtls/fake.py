"""An engine without cryptography: for tests in virtual time, where everything is a function of a seed.

Its records have DTLS's headers and sizes and are checked for damage, replay and age as OpenSSL checks them, so the
layer above works as it does with OpenSSL. But whoever reads the handshake knows the keys: it protects nothing.

    client   hello                       (random)
    gateway  hello verify request        (cookie)
    client   hello                       (random, cookie)
    gateway  server hello                (random, name of the gateway)
    client   finished                    (name of the device, instance, tag)
    gateway  finished                    (tag)
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from fairway.core.events import Address
from fairway.core.machine import Buffer
from fairway.core.random_source import RandomSource
from fairway.dtls.cookies import Cookies
from fairway.dtls.engine import DATAGRAM_BYTES_MAX, AssociationClosed, HandshakeFailed, PeerIdentity
from fairway.dtls.records import (
    ALERT,
    CLIENT_HELLO,
    DATA,
    HANDSHAKE,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    VERIFY_REQUEST,
    pack,
    split,
)

SERVER_HELLO, FINISHED = 2, 20
TAG_BYTES = 16
NONCE_BYTES = OVERHEAD_BYTES - HEADER_BYTES - TAG_BYTES
WINDOW = 64
"""Records that may come later than the newest, as in OpenSSL."""
SUITE = "fake"


class FakeAssociation:
    """One end of a handshake, and what follows it."""

    def __init__(
        self,
        name: str,
        random: bytes,
        *,
        expects: str = "",
        refused: Collection[str] = (),
        instance: bytes = b"",
    ) -> None:
        self.established = False
        self.instance = instance
        self._name = name
        self._calls = bool(expects)
        self._expects = expects
        self._refused = refused
        self._random = random
        self._key = b""
        self._peer_name = ""
        self._out = b""
        self._cookie = b""
        self._sequence = 0
        self._newest = -1
        self._seen: dict[int, None] = {}
        """Sequence numbers within the window that were taken."""
        self._early: list[bytes] = []

    # The handshake.

    def advance(self, datagram: bytes | None = None) -> None:
        """Take a handshake datagram, or begin."""
        if datagram is None:
            if self._calls:
                self._write(HANDSHAKE, 0, _hello(self._random, b""))
            return
        for record in split(datagram):
            if len(record) >= HEADER_BYTES:
                self._take(record)

    def accept(self, datagram: bytes) -> None:
        """Answer a hello that brought a valid cookie."""
        self._key = _key(_random_of(datagram), self._random)
        self._write(HANDSHAKE, 0, _message(SERVER_HELLO, self._random + self._name.encode()))

    def _take(self, record: bytes) -> None:
        kind, body = record[0], record[HEADER_BYTES:]
        if kind == ALERT and record[4] == 0 and body[:1] == b"\x02":
            raise HandshakeFailed("alert")
        if kind == DATA:
            self._early = [*self._early, record][-WINDOW:]
        if kind != HANDSHAKE or len(body) < 12:
            return
        message, content = body[0], body[12:]
        if self._calls and message == VERIFY_REQUEST and not self._cookie:
            self._cookie = content
            self._write(HANDSHAKE, 0, _hello(self._random, content))
        elif self._calls and message == SERVER_HELLO and not self._key and len(content) > 32:
            self._greeted(content[:32], content[32:].decode(errors="replace"))
        elif message == FINISHED and self._key and not self.established:
            self._finish(content)

    def _greeted(self, random: bytes, name: str) -> None:
        if name != self._expects:
            self._write(ALERT, 0, b"\x02\x2e")
            raise HandshakeFailed("wrong_name")
        self._peer_name, self._key = name, _key(self._random, random)
        own = self._name.encode() + b"\0" + self.instance
        self._write(HANDSHAKE, 1, _message(FINISHED, own + _tag(self._key, own)))

    def _finish(self, content: bytes) -> None:
        name, tag = content[:-TAG_BYTES], content[-TAG_BYTES:]
        if _tag(self._key, name) != tag:
            return
        if not self._calls:
            self._peer_name = name.partition(b"\0")[0].decode(errors="replace")
            self.instance = name.partition(b"\0")[2]
            if self._peer_name in self._refused:
                self._write(ALERT, 0, b"\x02\x2c")
                raise HandshakeFailed("revoked")
            self._write(HANDSHAKE, 1, _message(FINISHED, _tag(self._key, b"")))
        self.established = True

    def flight(self) -> list[bytes]:
        """Return what is to be sent."""
        stream, self._out = self._out, b""
        return pack(stream, DATAGRAM_BYTES_MAX)

    def timeout_us(self) -> int | None:
        """Return None: there is no timer of its own."""
        return None

    def ring(self) -> None:
        """Do nothing: there is no timer of its own."""

    def peer(self) -> PeerIdentity | None:
        """Return who is there."""
        return PeerIdentity(self._peer_name, 0, "", "", SUITE)

    # Records.

    @property
    def _keys(self) -> tuple[bytes, bytes]:
        """The keys of what is sent and of what is received: no record can be reflected."""
        client, gateway = (_key(self._key, end) for end in (b"client", b"gateway"))
        return (client, gateway) if self._calls else (gateway, client)

    def open(self, data: bytes, step: int) -> list[bytes]:
        """Return the plaintexts in a datagram, or in several."""
        early, self._early = self._early, []
        records = [record for start in range(0, len(data), step) for record in split(data[start : start + step])]
        return [body for record in (*early, *records) if (body := self._opened(record))]

    def _opened(self, record: bytes) -> bytes:
        protected, tag = record[:-TAG_BYTES], record[-TAG_BYTES:]
        sequence = int.from_bytes(record[5:11], "big")
        if len(record) < OVERHEAD_BYTES or _tag(self._keys[1], protected) != tag:
            return b""
        if sequence <= self._newest - WINDOW or sequence in self._seen:
            return b""
        self._newest = max(self._newest, sequence)
        self._seen[sequence] = None
        while min(self._seen) <= self._newest - WINDOW:
            del self._seen[min(self._seen)]
        if record[0] == ALERT:
            raise AssociationClosed("closed_by_peer")
        return protected[HEADER_BYTES + NONCE_BYTES :] if record[0] == DATA else b""

    def seal(self, data: Buffer, segment_bytes: int | None) -> tuple[bytes, int | None]:
        """Return the records of a datagram, or of several of one size."""
        step = segment_bytes or len(data)
        for start in range(0, len(data), step):
            self._protect(DATA, bytes(data[start : start + step]))
        sealed, self._out = self._out, b""
        return sealed, step + OVERHEAD_BYTES if len(data) > step else None

    def close(self, *, notify: bool) -> list[bytes]:
        """End it."""
        if notify and self.established:
            self._protect(ALERT, b"\x01\x00")
        return self.flight()

    def _protect(self, kind: int, body: bytes) -> None:
        size = NONCE_BYTES + len(body) + TAG_BYTES
        header = bytes((kind, 254, 253, 0, 1)) + self._sequence.to_bytes(6, "big") + size.to_bytes(2, "big")
        protected = header + bytes(NONCE_BYTES) + body
        self._sequence += 1
        self._out += protected + _tag(self._keys[0], protected)

    def _write(self, kind: int, epoch: int, body: bytes) -> None:
        header = bytes((kind, 254, 253)) + epoch.to_bytes(2, "big") + self._sequence.to_bytes(6, "big")
        self._sequence += 1
        self._out += header + len(body).to_bytes(2, "big") + body


class FakeGatewayEngine:
    """Makes a gateway's associations; `refused` are the names of devices that it does not accept."""

    def __init__(self, name: str, chance: RandomSource, refused: Collection[str] = ()) -> None:
        self._name = name
        self._chance = chance
        self._refused = refused
        self._cookies = Cookies(_draw(chance))

    def listen(self, datagram: bytes, address: Address, now_us: int) -> tuple[list[bytes], FakeAssociation | None]:
        """Check a hello."""
        if not self._cookies.valid(_cookie_of(datagram), address, now_us):
            answer = FakeAssociation(self._name, b"")
            answer._write(HANDSHAKE, 0, _message(VERIFY_REQUEST, self._cookies.make(address, now_us)))
            return answer.flight(), None
        association = FakeAssociation(self._name, _draw(self._chance), refused=self._refused)
        association.accept(datagram)
        return [], association

    def knows(self, cookie: bytes, address: Address, now_us: int) -> bool:
        """Return whether a cookie is valid."""
        return self._cookies.valid(cookie, address, now_us)

    def refusal(self, peer: PeerIdentity) -> str:
        """Return why a live association must end."""
        return "revoked" if peer.name in self._refused else ""


class FakeClientEngine:
    """Makes the associations of a device with the gateway of one name."""

    def __init__(self, device: str, name: str, chance: RandomSource) -> None:
        self.name = name
        self._device = device
        self._chance = chance

    def call(self, instance: bytes) -> FakeAssociation:
        """Return an association that has not begun."""
        return FakeAssociation(self._device, _draw(self._chance), expects=self.name, instance=instance)


def _draw(chance: RandomSource) -> bytes:
    return chance.bits(256).to_bytes(32, "big")


def _message(kind: int, content: bytes) -> bytes:
    size = len(content).to_bytes(3, "big")
    return bytes((kind,)) + size + bytes(5) + size + content


def _hello(random: bytes, cookie: bytes) -> bytes:
    return _message(CLIENT_HELLO, b"\xfe\xfd" + random + b"\0" + bytes((len(cookie),)) + cookie)


def _random_of(datagram: bytes) -> bytes:
    return datagram[HEADER_BYTES + 14 : HEADER_BYTES + 46]


def _cookie_of(datagram: bytes) -> bytes:
    return datagram[HEADER_BYTES + 48 :]


def _key(client: bytes, gateway: bytes) -> bytes:
    return blake2b(client + gateway, digest_size=32).digest()


def _tag(key: bytes, data: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=TAG_BYTES).digest()
