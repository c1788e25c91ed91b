"""QUIC by aioquic, one stream; the certificate is made for the run."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

from aioquic.asyncio import connect
from aioquic.asyncio import serve as serve_quic
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.transport.loads import Announce, Load
from benchmarks.transport.peers.framed import FramedSender, receive, reception_of

ALPN = ["fairway-bench"]
FLOW_CONTROL_BYTES = 16 << 20
IDLE_S = 60.0


def _configuration(*, client: bool, congestion: str = "reno") -> QuicConfiguration:
    return QuicConfiguration(
        congestion_control_algorithm=congestion,
        is_client=client,
        alpn_protocols=ALPN,
        verify_mode=ssl.CERT_NONE,
        max_data=FLOW_CONTROL_BYTES,
        max_stream_data=FLOW_CONTROL_BYTES,
        idle_timeout=IDLE_S,
    )


def _certificate() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Sign a certificate for itself that is good for an hour."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairway bench")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return certificate, key


async def open_sender(host: str, port: int, load: Load, congestion: str = "reno") -> FramedSender:
    """Open one stream of one connection, which ends with the process."""
    connection = connect(host, port, configuration=_configuration(client=True, congestion=congestion))
    protocol = await connection.__aenter__()
    reader, writer = await protocol.create_stream()
    return FramedSender(load, reader, writer, owner=connection)


async def serve(host: str, load: Load, announce: Announce, congestion: str = "reno") -> None:
    """Receive from every stream that is opened."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reception, tasks = reception_of(load), []

    def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(receive(load, reception, failed, reader, writer)))

    configuration = _configuration(client=False)
    configuration.certificate, configuration.private_key = _certificate()
    server: Any = await serve_quic(host, 0, configuration=configuration, stream_handler=opened)
    # aioquic does not tell the port that it got.
    announce(server._transport.get_extra_info("sockname")[:2], reception)
    try:
        await failed
    finally:
        server.close()
