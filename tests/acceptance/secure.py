"""A raw peer behind DTLS: OpenSSL and a socket, nothing of Fairway."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from OpenSSL import SSL, crypto

from .raw import PATIENCE_S, RawPeer, joined

DTLS_1_2 = 0xFEFD
DATAGRAM_BYTES_MAX = 1_200


def context(method: int, identity: Path) -> SSL.Context:
    """Return a context that has an identity and verifies the peer's."""
    made = SSL.Context(method)
    made.set_min_proto_version(DTLS_1_2)
    made.set_options(SSL.OP_NO_QUERY_MTU)
    made.use_certificate_chain_file(str(identity))
    made.use_privatekey_file(str(identity), crypto.FILETYPE_PEM)
    made.load_verify_locations(str(identity))
    made.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
    return made


class SecurePeer(RawPeer):
    """A raw peer that calls and is called by DTLS; the tests see what is inside the records."""

    def __init__(self, device: Path, gateway: Path, to: tuple[str, int] | None = None) -> None:
        super().__init__(to)
        self._calling = context(SSL.DTLS_CLIENT_METHOD, device)
        self._called = context(SSL.DTLS_SERVER_METHOD, gateway)
        self._ends: dict[tuple[str, int], SSL.Connection] = {}
        self._up: set[tuple[str, int]] = set()
        self._waiting: list[tuple[bytes, tuple[str, int]]] = []

    def _end(self, address: tuple[str, int], *, calls: bool) -> SSL.Connection:
        if address not in self._ends:
            end = self._ends[address] = SSL.Connection(self._calling if calls else self._called, None)
            end.set_ciphertext_mtu(DATAGRAM_BYTES_MAX)
            (end.set_connect_state if calls else end.set_accept_state)()
        return self._ends[address]

    def send(self, *parts: bytes | str) -> bytes:
        datagram = joined(parts)
        assert self.to is not None
        end, until_s = self._end(self.to, calls=True), time.monotonic() + PATIENCE_S
        while self.to not in self._up:
            self._advance(self.to)
            if self.to not in self._up:
                self._read(until_s)
        if not datagram:
            # No record is empty: this one goes beside them.
            self.socket.sendto(datagram, self.to)
            return datagram
        end.send(datagram)
        self._flush(self.to)
        return datagram

    def receive(self, within_s: float = PATIENCE_S) -> bytes:
        until_s = time.monotonic() + within_s
        while not self._waiting:
            self._read(until_s)
        datagram, self.to = self._waiting.pop(0)
        return datagram

    def _read(self, until_s: float) -> None:
        """Take one datagram: of a handshake, or with what `receive` returns next."""
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.socket.settimeout(left_s)
        datagram, address = self.socket.recvfrom(65_535)
        end = self._end(address, calls=False)
        end.bio_write(datagram)
        if address not in self._up:
            self._advance(address)
        try:
            while address in self._up:
                self._waiting.append((end.recv(65_535), address))
        except SSL.WantReadError:
            return
        except SSL.ZeroReturnError:
            del self._ends[address]
            self._up.discard(address)

    def _advance(self, address: tuple[str, int]) -> None:
        with suppress(SSL.WantReadError):
            self._ends[address].do_handshake()
            self._up.add(address)
        self._flush(address)

    def _flush(self, address: tuple[str, int]) -> None:
        """Send what OpenSSL has written, a record a datagram."""
        stream = b""
        with suppress(SSL.WantReadError):
            stream = self._ends[address].bio_read(1 << 16)
        while stream:
            size = 13 + int.from_bytes(stream[11:13], "big")
            self.socket.sendto(stream[:size], address)
            stream = stream[size:]
