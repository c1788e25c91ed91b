"""A gateway over DTLS: each message lands once, with the right device, whatever is killed, moved or revoked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairway import net
from fairway.dtls import Limits
from fairway.dtls.openssl import OpensslClientEngine
from fairway.gateway.settings import build
from fairway.net.security import SecureLink
from tests.dtls.world import Fleet
from tests.loopback import own_host

from .world import (
    CLIENT,
    PROTOCOLS,
    Crowd,
    Ledger,
    Running,
    Sender,
    fetch,
    gateway,
    journalled,
    landed,
    metrics_url,
    until,
)

SEALS_OFTEN = ("--seal-after", "150ms")
KILLS = 12
PAUSE_S = 0.02
"""Of each sender, so that loading has a share of the cores."""
NAME = "gateway.test"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def secure(fleet: Fleet, urls: list[str] | None = None) -> list[str]:
    """Return URLs to serve: any ports, or those of before."""
    identity = f"?identity={fleet.file(NAME, 'gateway')}&revoked={fleet.folder / 'ca' / 'revoked.txt'}"
    plain = urls or [f"{protocol}+dtls://{own_host()}:0" for protocol in PROTOCOLS]
    return [f"{url}{identity}" for url in plain]


def sender(running: Running, fleet: Fleet, protocol: str, ledger: Ledger) -> Sender:
    device = fleet.file(f"device-{protocol}")
    return Sender(running.url(f"{protocol}+dtls"), protocol, ledger, f"&name={NAME}&identity={device}")


def check_devices(lake: Path) -> None:
    """See that each message bears the name of the device that sent it."""
    rows = landed(lake)
    assert {row["protocol"] for row in rows} == set(PROTOCOLS)
    assert {(row["device"], row["body"].partition(b"-")[0].decode()) for row in rows} == {
        (f"device-{protocol}", protocol) for protocol in PROTOCOLS
    }


class Nat(asyncio.DatagramProtocol):
    """Passes datagrams of one caller on, from a port that changes when it is told so."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._caller: tuple[str, int] | None = None
        self._inside: asyncio.DatagramTransport
        self._outside = self._bind()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._inside = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._caller = addr
        self._outside.sendto(data, self._target)

    def _bind(self) -> socket.socket:
        outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outside.bind((self._target[0], 0))
        outside.setblocking(False)
        asyncio.get_running_loop().add_reader(outside, self._answered, outside)
        return outside

    def _answered(self, outside: socket.socket) -> None:
        with suppress(BlockingIOError):
            self._inside.sendto(outside.recv(65_536), self._caller)

    def move(self) -> None:
        """Take another port, and let go of the one before."""
        self.close()
        self._outside = self._bind()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._outside)
        self._outside.close()


@asynccontextmanager
async def nat(url: str) -> AsyncIterator[tuple[str, Nat]]:
    """Yield the URL of a NAT in front of a gateway."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    target = (parts.hostname, parts.port)
    loop = asyncio.get_running_loop()
    transport, relay = await loop.create_datagram_endpoint(lambda: Nat(target), local_addr=(target[0], 0))
    try:
        yield f"{parts.scheme}://{target[0]}:{transport.get_extra_info('sockname')[1]}", relay
    finally:
        relay.close()
        transport.close()


async def test_killed_gateways_lose_and_double_nothing_and_know_their_devices(
    fleet: Fleet, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile every device renews its association again and again, and another one is revoked."""
    monkeypatch.setattr("fairway.dtls.outputs.Limits", partial(Limits, renew_records=100))
    ledger = Ledger()
    async with gateway(lake, secure(fleet), *SEALS_OFTEN) as first:
        crowd = Crowd(*(sender(first, fleet, protocol, ledger) for protocol in PROTOCOLS))
        devices = [(await one.connect()).statistics.dtls for one in crowd.senders]
        await crowd.begin(200, PAUSE_S)
        stolen = f"{first.url('udpc+dtls')}?name={NAME}&identity={fleet.file('stolen')}"
        async with net.connect(stolen, close_timeout_s=0):
            fleet.authority.revoke("stolen")
            await until(lambda: any("stolen at" in line and "is revoked" in line for line in first.said))
        await until(lambda: all(one is not None and one.renewals for one in devices))
        first.process.kill()
        await first.ended()
        for left in reversed(range(KILLS)):
            async with gateway(lake, secure(fleet, first.urls), *SEALS_OFTEN) as again:
                await crowd.more(100)
                if left:
                    again.process.kill()
                    await again.ended()
                else:
                    await crowd.end(again, lake)
    assert not journalled(lake)
    check_devices(lake)


async def test_a_restored_session_is_only_for_its_own_device(fleet: Fleet, lake: Path) -> None:
    """Another device at the same address, with the session's number, gets nothing of it."""
    one, two = fleet.file("one"), fleet.file("two")
    async with gateway(lake, secure(fleet), *SEALS_OFTEN) as first:
        connection = await net.connect(f"{first.url('udpc+dtls')}?name={NAME}&identity={one}")
        await connection.send(b"mine")
        link = connection._endpoint.driver.link
        assert isinstance(link, SecureLink)
        # The next handshake of the same socket, with the same session, has another certificate.
        link._layer.replace_engine(OpensslClientEngine(fleet.identity("two"), NAME))  # type: ignore[arg-type,call-arg]
        first.process.kill()
        await first.ended()
    async with gateway(lake, secure(fleet, first.urls), *SEALS_OFTEN) as second:
        other = await net.connect(f"{first.url('udpc+dtls')}?name={NAME}&identity={two}")
        with suppress(net.DeliveryUnknown, net.DeliveryRefused, net.ConversationClosed, TimeoutError):
            async with asyncio.timeout(5):
                await connection.send(b"stolen")
        await other.send(b"my own")
        await connection.close(0.0)
        await other.close()
        assert await second.stop() == 0
    assert [(row["device"], row["body"]) for row in landed(lake)] == [("one", b"mine"), ("two", b"my own")]


def test_only_a_port_without_dtls_is_said_to_be_open_to_anybody(fleet: Fleet, tmp_path: Path) -> None:
    secured = f"udpc+dtls://0.0.0.0:9000?identity={fleet.file(NAME, 'gateway')}"
    urls = [secured, "udpc://0.0.0.0:9001", "udpc://127.0.0.1:9002"]
    assert build({"urls": urls, "lake": tmp_path}).open_urls == ["udpc://0.0.0.0:9001"]
    assert build({"urls": urls, "lake": tmp_path, "allow": ["10.0.0.0/8"]}).open_urls == []


async def test_an_address_that_is_not_allowed_gets_not_even_a_cookie(fleet: Fleet, lake: Path) -> None:
    elsewhere = "127.255.255.254"
    options = ("--deny", f"{elsewhere}/32", "--metrics", f"{own_host()}:0")
    async with gateway(lake, secure(fleet)[:1], *SEALS_OFTEN, *options) as running:
        url = running.url("udpc+dtls")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((elsewhere, 0))
            stranger.connect((urlsplit(url).hostname, urlsplit(url).port))
            caller = OpensslClientEngine(fleet.identity("one"), NAME).call(b"")
            caller.advance()
            stranger.send(caller.flight()[0])
            # The socket of the gateway is read in order.
            async with net.connect(f"{url}?name={NAME}&identity={fleet.file('one')}") as connection:
                await connection.send(b"allowed")
                _, metrics = await fetch(await metrics_url(running))
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(2_048)
        endpoint = f'{{endpoint="{url}",gateway="gateway"}}'
        assert f"fairway_gateway_dtls_hellos_total{endpoint} 1.0" in metrics
        assert f"fairway_gateway_dtls_handshakes_total{endpoint} 1.0" in metrics
        assert 'reason="guard_denied",where="udpc"} 1.0' in metrics
        assert await running.stop() == 0
    assert [row["body"] for row in landed(lake)] == [b"allowed"]


async def move_while_talking(running: Running, protocol: str, identity: Path) -> None:
    """Have the port of a client change between messages; each time the gateway follows it."""
    options = f"{CLIENT[protocol]}&name={NAME}&identity={identity}"
    async with nat(running.url(f"{protocol}+dtls")) as (url, relay), net.connect(url + options) as connection:
        for number in range(3):
            await connection.send(b"%d" % number)
            relay.move()
            await connection.send(b"%d after the move" % number)
        _, metrics = await fetch(await metrics_url(running))
        endpoint = f'{{endpoint="{running.url(f"{protocol}+dtls")}",gateway="gateway"}}'
        assert f"fairway_gateway_dtls_moved_total{endpoint} 3.0" in metrics
        assert f"fairway_gateway_dtls_half_open{endpoint} 0.0" in metrics


async def test_a_conversation_goes_on_when_the_port_of_its_client_changes(fleet: Fleet, lake: Path) -> None:
    async with gateway(lake, secure(fleet), *SEALS_OFTEN, "--metrics", f"{own_host()}:0") as running:
        await asyncio.gather(*(move_while_talking(running, name, fleet.file("one")) for name in PROTOCOLS))
        assert await running.stop() == 0
    for protocol in PROTOCOLS:
        rows = [row for row in landed(lake) if row["protocol"] == protocol]
        assert [row["body"] for row in rows] == [
            body for number in range(3) for body in (b"%d" % number, b"%d after the move" % number)
        ]
        assert {row["device"] for row in rows} == {"one"}
        assert len({row["session"] for row in rows}) == 1
        assert len({row["peer_port"] for row in rows}) == 1
