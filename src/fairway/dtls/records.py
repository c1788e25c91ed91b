"""DTLS 1.2 records (RFC 6347, section 4.1) and what of them is readable without a key.

    record      type:1 version:2 epoch:2 sequence:6 length:2 body
    handshake   type:1 length:3 message_seq:2 fragment_offset:3 fragment_length:3 body
    ClientHello version:2 random:32 session_id:1+n cookie:1+n ...

OpenSSL writes a stream of records into its buffer; the network carries datagrams. `pack` makes the one of the other,
and never cuts a record.
"""

from __future__ import annotations

from typing import NamedTuple

HEADER_BYTES = 13
OVERHEAD_BYTES = 37
"""Of a record with AES-GCM or AES-CCM: header, explicit nonce, tag. ChaCha20 needs eight bytes less."""

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, DATA = 20, 21, 22, 23
CLIENT_HELLO, VERIFY_REQUEST = 1, 3
_HANDSHAKE_BYTES = 12
_RANDOM_AT = HEADER_BYTES + _HANDSHAKE_BYTES + 2
_SESSION_AT = _RANDOM_AT + 32

CLOSED = bytes((ALERT, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0))
"""A close_notify without any protection: nobody may believe it, but a client may take it as a reason to shake hands."""


class Hello(NamedTuple):
    """What tells one ClientHello from another."""

    random: bytes
    cookie: bytes


def is_record(datagram: bytes) -> bool:
    """Return whether a datagram begins with a whole record of DTLS 1.0 or 1.2."""
    return (
        len(datagram) >= HEADER_BYTES
        and CHANGE_CIPHER_SPEC <= datagram[0] <= DATA
        and datagram[1] == 254
        and datagram[2] in {253, 255}
        and HEADER_BYTES + (datagram[11] << 8 | datagram[12]) <= len(datagram)
    )


def is_single_data(datagram: bytes) -> bool:
    """Return whether a datagram is exactly one record of application data."""
    size = len(datagram)
    return size > HEADER_BYTES and datagram[0] == DATA and HEADER_BYTES + (datagram[11] << 8 | datagram[12]) == size


def is_all_data(data: bytes, step: int) -> bool:
    """Return whether every datagram of a super-buffer begins with a record of application data."""
    return data[::step].count(DATA) * step >= len(data)


def is_run(data: bytes, step: int) -> bool:
    """Return whether the datagrams of a super-buffer are single records of application data, of one version and epoch.

    Only these may be read as a stream: of others OpenSSL drops neighbours, too.
    """
    first, count = data[:step], len(data) // step
    return (
        is_single_data(first)
        and first[1:3] == b"\xfe\xfd"
        and is_protected(first)
        and all(data[offset::step].count(first[offset]) == count for offset in (0, 1, 2, 3, 4, 11, 12))
    )


def is_protected(datagram: bytes) -> bool:
    """Return whether the first record is of an epoch that has keys."""
    return datagram[3] != 0 or datagram[4] != 0


def is_unprotected_close(datagram: bytes) -> bool:
    """Return whether a datagram is a close_notify that anybody could have written."""
    return datagram[0] == ALERT and not is_protected(datagram) and datagram[HEADER_BYTES:] == b"\x01\x00"


def is_verify_request(datagram: bytes) -> bool:
    """Return whether a datagram is a HelloVerifyRequest."""
    return len(datagram) > HEADER_BYTES and datagram[0] == HANDSHAKE and datagram[HEADER_BYTES] == VERIFY_REQUEST


def hello(datagram: bytes) -> Hello | None:
    """Return the random of a ClientHello's first fragment, and None for everything else."""
    if len(datagram) < _SESSION_AT + 2 or datagram[0] != HANDSHAKE or is_protected(datagram):
        return None
    if datagram[HEADER_BYTES] != CLIENT_HELLO or any(datagram[HEADER_BYTES + 6 : HEADER_BYTES + 9]):
        return None
    cookie_at = _SESSION_AT + 1 + datagram[_SESSION_AT]
    size = datagram[cookie_at] if cookie_at < len(datagram) else 0
    return Hello(datagram[_RANDOM_AT:_SESSION_AT], datagram[cookie_at + 1 : cookie_at + 1 + size])


def split(stream: bytes) -> list[bytes]:
    """Return the records of a stream, one by one."""
    records, start, size = [], 0, len(stream)
    while start < size:
        end = start + HEADER_BYTES + int.from_bytes(stream[start + 11 : start + 13], "big")
        records.append(stream[start:end])
        start = end
    return records


def pack(stream: bytes, datagram_bytes_max: int) -> list[bytes]:
    """Return datagrams of whole records, each as large as the limit allows."""
    datagrams: list[bytes] = []
    waiting = b""
    for record in split(stream):
        if waiting and len(waiting) + len(record) > datagram_bytes_max:
            datagrams.append(waiting)
            waiting = b""
        waiting += record
    return [*datagrams, waiting] if waiting else datagrams
