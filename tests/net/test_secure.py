"""DTLS URLs: all four protocols, both interfaces, with the device's name on every message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fairway
from fairway.core.errors import BadMessage, BadOption
from fairway.dtls import BadIdentity
from fairway.dtls.authority import REVOKED
from fairway.net import Connection, Listener, blocking, connect, listen, security
from fairway.protocols import NAMES
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.udpc import wire as udpc
from tests.dtls.world import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    made.file("127.0.0.1", "gateway")
    made.file("sensor-1")
    made.file("sensor-2")
    return made


def served(fleet: Fleet, protocol: str, *, more: str = "") -> str:
    """Return the URL of a listener."""
    return f"{protocol}+dtls://127.0.0.1:0?identity={fleet.file('127.0.0.1', 'gateway')}{more}"


@asynccontextmanager
async def pair(fleet: Fleet, protocol: str) -> AsyncIterator[tuple[Listener, Connection]]:
    """Yield a listener, and a device that is connected to it."""
    identity = str(fleet.file("sensor-1"))
    async with listen(served(fleet, protocol)) as listener, connect(listener.url, identity=identity) as connection:
        yield listener, connection


@pytest.mark.parametrize("protocol", NAMES)
async def test_a_message_and_its_device_cross_in_both_directions(protocol: str, fleet: Fleet) -> None:
    async with listen(served(fleet, protocol)) as listener:
        assert listener.url.startswith(f"{protocol}+dtls://127.0.0.1:")
        async with connect(listener.url, identity=str(fleet.file("sensor-1"))) as connection:
            await connection.send(b"hello")
            message = await listener.receive()
            assert (message.body, message.device, message.peer.device) == (b"hello", "sensor-1", "sensor-1")
            assert connection.device == "127.0.0.1"
            await message.peer.send(b"welcome")
            assert (await connection.receive()).body == b"welcome"
            told = listener.statistics[0].dtls
            assert told is not None
            assert (told.associations, told.handshakes) == (1, 1)


async def test_plain_ports_have_no_devices() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        await connection.send(b"hello")
        assert (await listener.receive()).device is None
        assert connection.device is None
        assert connection.statistics.dtls is None
        assert "dtls" not in connection.statistics.as_dict()


def test_the_calls_that_wait_work_too(fleet: Fleet) -> None:
    identity = str(fleet.file("sensor-1"))
    with (
        blocking.listen(served(fleet, "mrp")) as listener,
        blocking.connect(listener.url, identity=identity) as connection,
    ):
        connection.send(b"hello")
        assert connection.device == "127.0.0.1"
        message = listener.receive()
        assert (message.body, message.device) == (b"hello", "sensor-1")


@pytest.mark.parametrize("protocol", NAMES)
async def test_many_messages_cross_in_batches(protocol: str, fleet: Fleet) -> None:
    bodies = [b"%6d" % number * 100 for number in range(3_000)]
    async with pair(fleet, protocol) as (listener, connection):
        sending = asyncio.ensure_future(connection.send_many(bodies))
        received = [(await listener.receive()).body for _ in bodies]
        await sending
        assert sorted(received) == bodies
        told = connection.statistics
        assert told.socket.send_calls < told.machine.datagrams_sent


@pytest.mark.parametrize(
    ("protocol", "header_bytes"),
    [("udpc", udpc.HEADER_BYTES), ("mrp", mrp.STAMPED_BYTES), ("pydevts", pydevts.HEADER_BYTES)],
)
async def test_a_body_that_fits_no_record_is_refused(protocol: str, header_bytes: int, fleet: Fleet) -> None:
    async with pair(fleet, protocol) as (_, connection):
        await connection.send(bytes(1_163 - header_bytes))
        with pytest.raises(BadMessage):
            await connection.send(bytes(1_164 - header_bytes))


async def test_rup_cuts_a_large_message_into_records(fleet: Fleet) -> None:
    body = bytes(range(256)) * 4_096
    async with pair(fleet, "rup") as (listener, connection):
        await connection.send(body)
        assert (await listener.receive()).body == body
        told = listener.statistics[0].dtls
        assert told is not None
        assert told.dropped == {}


async def test_a_gateway_of_another_name_is_refused_with_the_reason(fleet: Fleet) -> None:
    async with listen(served(fleet, "udpc")) as listener:
        with pytest.raises(fairway.ConnectRefused, match="is for another name; name= says"):
            async with connect(listener.url, identity=str(fleet.file("sensor-1")), name="gateway.test"):
                pass


async def test_files_are_read_again_and_the_revoked_lose_their_association_whatever_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway's own certificate may have ended, or a key be copied with the wrong mode, when a device is stolen."""
    fleet = Fleet(tmp_path)
    monkeypatch.setattr(security, "LOOK_US", 50_000)
    caplog.set_level(logging.INFO, "fairway.dtls")
    own, listed = fleet.file("127.0.0.1", "gateway"), tmp_path / "ca" / REVOKED

    async def said(words: str) -> None:
        while words not in caplog.text:
            await asyncio.sleep(0.01)

    async with (
        listen(served(fleet, "mrp", more=f"&revoked={listed}")) as listener,
        connect(listener.url, identity=str(fleet.file("sensor-1")), close_timeout_s=0) as one,
        connect(listener.url, identity=str(fleet.file("sensor-2"))) as two,
    ):
        await one.send(b"one")
        await two.send(b"two")
        own.chmod(0o644)
        await said(f"chmod 600 {own}; the keys from before")
        fleet.authority.revoke("sensor-1")
        dtls = listener.statistics[0].dtls
        assert dtls is not None
        while dtls.associations == 2:
            await asyncio.sleep(0.01)
        assert dtls.dropped["association_revoked"] == 1
        await two.send(b"still here")
        caplog.clear()
        own.chmod(0o600)
        await said("were read again")
        assert not [one for one in caplog.records if one.levelno == logging.ERROR]
        listed.write_text(listed.read_text() + "serial:nonsense\n")
        await said("stay in use")
        await two.send(b"and now")


@pytest.mark.parametrize(
    ("url", "error", "sentence"),
    [
        ("udpc+dtls://127.0.0.1:9", BadOption, "DTLS needs identity=FILE"),
        ("udpc+dtls://127.0.0.1:9?identity=none.pem", BadIdentity, "none.pem: No such file"),
        ("udpc://127.0.0.1:9?identity=none.pem", BadOption, r"write udpc\+dtls://"),
    ],
)
async def test_a_url_that_cannot_work_is_refused_in_a_sentence(url: str, error: type[Exception], sentence: str) -> None:
    for opening in (connect, listen):
        with pytest.raises(error, match=sentence):
            async with opening(url):
                pass


async def test_a_gateway_that_is_given_a_name_is_told_where_its_name_is(fleet: Fleet) -> None:
    with pytest.raises(BadOption, match="a gateway's own name is in its certificate"):
        async with listen(served(fleet, "udpc", more="&name=other")):
            pass


async def test_a_trace_holds_plaintext(fleet: Fleet, tmp_path: Path) -> None:
    trace = tmp_path / "run.pcapng"
    async with listen(served(fleet, "udpc")) as listener:
        identity = str(fleet.file("sensor-1"))
        async with connect(listener.url, identity=identity, trace=trace) as connection:
            await connection.send(b"read me in the trace")
    assert b"read me in the trace" in trace.read_bytes()
