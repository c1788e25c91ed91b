"""Backpressure, cancelling, closing: memory stays bounded, and nothing hangs."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from fairway.core.events import NOT_SENT
from fairway.net import (
    ConnectUnknown,
    DeliveryRefused,
    DeliveryUnknown,
    Listener,
    Part,
    connect,
    conversations,
    kernel,
    listen,
)
from tests.capture.reading import read_capture
from tests.loopback import closed_port, own_host
from tests.net.worlds import PATHS, PROTOCOLS, io_of


def silent_socket() -> socket.socket:
    """A bound socket that nobody reads."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
async def test_a_connect_to_a_closed_port_fails_at_once(protocol: str, path: str) -> None:
    with pytest.raises(ConnectUnknown, match="refused"):
        async with connect(f"{protocol}://{closed_port()}", io=io_of(path)):
            pass


PATIENT = {"rup": "silence=10m&rto_initial=3s", "pydevts": "repeat_after=4s"}
"""So patient that only an ICMP error ends a message within the time of a test."""
BRIEF = {"rup": "silence=100ms", "pydevts": "repeat_after=20ms&packet_repeats_max=2"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("protocol", ["rup", "pydevts"])
async def test_a_message_to_a_closed_port_ends_by_the_icmp_error(protocol: str, path: str) -> None:
    url = f"{protocol}://{closed_port()}?window=2&{PATIENT[protocol]}"
    async with connect(url, io=io_of(path)) as connection:
        with pytest.raises(DeliveryUnknown, match="refused"):
            await connection.send(b"anybody?")
        outcomes = await asyncio.gather(
            *(connection.send_nowait(b"%d" % number) for number in range(100)), return_exceptions=True
        )
    assert {type(outcome) for outcome in outcomes} == {DeliveryUnknown, DeliveryRefused}
    assert {str(outcome) for outcome in outcomes if isinstance(outcome, DeliveryRefused)} == {"not sent"}


@pytest.mark.parametrize("protocol", ["rup", "pydevts"])
async def test_an_icmp_error_of_a_peer_that_has_answered_changes_nothing(protocol: str) -> None:
    listener = await listen(f"{protocol}://127.0.0.1:0")
    async with connect(f"{listener.url}?{BRIEF[protocol]}") as connection:
        await connection.send(b"here")
        await listener.close()
        with pytest.raises(DeliveryUnknown) as ended:
            await connection.send(b"still here?")
        assert "refused" not in str(ended.value)
        assert connection.statistics.socket.unreachable > 0


async def test_a_connect_from_a_listening_socket_to_a_closed_port_fails_at_once_and_the_listener_goes_on() -> None:
    async with listen("udpc://127.0.0.1:0") as one, listen("udpc://127.0.0.1:0") as other:
        with pytest.raises(ConnectUnknown):
            await one.connect(f"udpc://{closed_port()}")
        peer = await one.connect(other.url)
        await peer.send(b"hello")


async def test_a_message_without_an_acknowledgement_ends_as_unknown() -> None:
    with silent_socket() as sock:
        async with connect(f"rup://127.0.0.1:{sock.getsockname()[1]}?silence=100ms") as connection:
            with pytest.raises(DeliveryUnknown):
                await connection.send(b"anyone?")
            with pytest.raises(DeliveryUnknown, match="2 unknown") as caught:
                await connection.send_many([b"1", b"2"])
            assert caught.value.tally is not None
            assert caught.value.tally.unknown == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_receiver_that_does_not_read_makes_its_senders_wait(protocol: str) -> None:
    """Everything is bounded to a few messages on both sides; nothing is lost when the reading starts."""
    receiving = f"{protocol}://127.0.0.1:0?open_receipts_max=8"
    sending = "send_queue_messages_max=4&window=4"
    async with listen(receiving) as listener, connect(f"{listener.url}?{sending}") as connection:
        sends = [connection.send_nowait(b"%d" % number) for number in range(40)]
        await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(sends, timeout=0.3)
        done = sum(send.done() for send in sends)
        assert 0 < done <= 16
        assert listener.statistics[0].machine.messages_received <= 8
        received = sorted([int((await listener.receive()).body) for _ in sends])
        await asyncio.gather(*sends)
        assert received == list(range(40))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_send_many_waits_for_room_in_the_send_queue(protocol: str) -> None:
    few = "send_queue_messages_max=7"
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(f"{listener.url}?{few}") as connection:
        first = connection.send_many([b"a%d" % number for number in range(100)])
        between = connection.send_nowait(b"between")
        last = connection.send_many([b"b%d" % number for number in range(100)])
        await between
        assert (await first, await last) == (100, 100)
        batch: list[bytes] = []
        while len(batch) < 201:
            batch.extend((await listener.receive_many()).bodies)
        assert len(set(batch)) == 201


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_cancelling_leaves_the_connection_usable(protocol: str) -> None:
    url = f"{protocol}://127.0.0.1:0?deferred=true"
    async with listen(url) as listener, connect(f"{listener.url}?send_queue_messages_max=3") as connection:
        sends = [connection.send_nowait(b"%d" % number) for number in range(6)]
        bulk = connection.send_many([b"bulk"] * 50)
        receiving = asyncio.ensure_future(connection.receive())
        first = await listener.receive()
        for send in sends[:4]:
            send.cancel()
        bulk.cancel()
        receiving.cancel()
        first.commit()
        await asyncio.wait([receiving])
        commits = asyncio.ensure_future(commit_all(listener))
        await asyncio.gather(*sends[4:])
        await connection.send(b"still here")
        commits.cancel()
        await asyncio.wait([commits])


async def commit_all(listener: Listener) -> None:
    while True:
        (await listener.receive_many()).commit()


async def test_a_cancelled_receive_passes_its_message_on() -> None:
    async with listen("rup://127.0.0.1:0") as listener, connect(listener.url) as connection:
        waiting = [asyncio.ensure_future(listener.receive()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await connection.send(b"one")
        await connection.send(b"two")
        assert [(await one).body for one in waiting[1:]] == [b"one", b"two"]
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_leaving_the_context_flushes_what_was_not_awaited(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener:
        async with connect(f"{listener.url}?send_queue_messages_max=10") as connection:
            sends = [connection.send_nowait(b"%d" % number) for number in range(100)]
        assert [send.done() for send in sends] == [True] * 100
        await asyncio.gather(*sends)
        received: list[bytes] = []
        while len(received) < 100:
            received.extend((await listener.receive_many()).bodies)
        assert sorted(map(int, received)) == list(range(100))


@pytest.mark.parametrize("protocol", ["rup", "pydevts"])
async def test_leaving_the_context_is_bounded_when_nobody_answers(protocol: str) -> None:
    with silent_socket() as sock:
        url = f"{protocol}://127.0.0.1:{sock.getsockname()[1]}"
        async with connect(url, close_timeout_s=0.2, send_queue_messages_max=2) as connection:
            sends = [connection.send_nowait(b"anyone?") for _ in range(5)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        ends = {DeliveryUnknown: "the endpoint was closed before an answer came", DeliveryRefused: NOT_SENT}
        assert {(type(result), str(result)) for result in results} == set(ends.items()), "no machine gave up by itself"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_closing_twice_is_fine(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener:
        async with connect(listener.url) as connection:
            await connection.send(b"hello")
            peer = (await listener.receive()).peer
            await peer.close()
            await peer.close()
            await connection.close()
            await connection.close()
        await listener.close()
        await listener.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_trace_holds_every_datagram_of_both_directions(path: str, tmp_path: Path) -> None:
    async with listen("udpc://127.0.0.1:0", io=io_of(path)) as listener:
        async with connect(listener.url, io=io_of(path), trace=tmp_path / "client.pcapng") as connection:
            await connection.send_many([b"%d" % number for number in range(50)])
            await connection.send(b"\xff" * 999)
            counted = connection.statistics.machine
        with (tmp_path / "client.pcapng").open("rb") as file:
            frames = read_capture(file.read())
        assert len(frames) == counted.datagrams_sent + counted.datagrams_received
        times = sum(b"\xff" * 999 in frame.data for frame in frames)
        assert 1 <= times <= 1 + counted.retransmissions


async def test_a_receive_buffer_too_small_for_the_window_is_said_once_with_the_remedy(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "try_option", lambda *arguments: False)
    async with listen("rup://127.0.0.1:0?window=10000", io="portable"):
        pass
    said = [record.getMessage() for record in caplog.records if record.name == "fairway.net"]
    assert len(said) == 1
    assert "sysctl -w net.core.rmem_max=" in said[0]


async def test_endpoints_of_one_listener_share_one_trace(tmp_path: Path) -> None:
    trace = tmp_path / "server.pcapng"
    async with listen("udpc://127.0.0.1:0", "rup://127.0.0.1:0", trace=trace) as listener:
        for url in listener.urls:
            async with connect(url) as connection:
                await connection.send(b"hello from " + url.encode())
    frames = read_capture(trace.read_bytes())
    assert sum(b"hello from" in frame.data for frame in frames) == 2


async def test_a_large_message_is_spooled_part_by_part() -> None:
    body = bytes(range(256)) * 8_192
    url = "rup://127.0.0.1:0?spool_above_bytes=1MiB&deferred=true"
    async with listen(url) as listener, connect(listener.url) as connection:
        sent = connection.send_nowait(body)
        spooled = bytearray(len(body))
        received = await listener.receive()
        while isinstance(received, Part):
            spooled[received.offset : received.offset + len(received.body)] = received.body
            received = await listener.receive()
        assert (received.body, bytes(spooled) == body, sent.done()) == (b"", True, False)
        received.commit()
        await sent


async def test_what_closed_conversations_left_unread_is_bounded_by_not_reading() -> None:
    async with listen("udpc://127.0.0.1:0?open_receipts_max=4") as listener:
        for number in range(3):
            async with connect(listener.url) as connection:
                await connection.send_many([b"%d" % number] * 4)
        with pytest.raises(ConnectUnknown):
            await connect(listener.url, connect_timeout="200ms")
        assert [(await listener.receive()).body[0] - 48 for _ in range(12)] == [0] * 4 + [1] * 4 + [2] * 4
        async with connect(listener.url) as connection:
            await connection.send(b"now it reads again")


async def test_a_connection_goes_on_from_its_snapshot_after_a_restart() -> None:
    async with listen("mrp://127.0.0.1:0") as client:
        listener = await listen(f"mrp://{own_host()}:0?deferred=true")
        url = listener.url
        connection = await client.connect(url)
        first = connection.send_nowait(b"one")
        received = await listener.receive()
        snapshot = received.peer.snapshot([received.receipt])
        received.commit()
        await first
        listener._served[0].endpoint.driver.close()
        async with listen(f"{url}?deferred=true") as restarted:
            restarted.restore(snapshot, "mrp")
            second = connection.send_nowait(b"two")
            received = await restarted.receive()
            received.commit()
            await second
            assert (received.body, received.id) == (b"two", 2)


async def test_a_forgotten_peer_can_still_be_answered_and_is_the_same_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "PASSIVE_MAX", 3)
    async with listen("pydevts://127.0.0.1:0?send_queue_messages_max=2") as listener:
        clients = [await connect(listener.url) for _ in range(10)]
        for number, client in enumerate(clients):
            await client.send(b"%d" % number)
        received = [await listener.receive() for _ in clients]
        assert len(listener._served[0]._connections) <= 3
        await asyncio.gather(*[one.peer.send_many([b"to " + one.body] * 5) for one in received])
        for number, client in enumerate(clients):
            assert (await client.receive()).body == b"to %d" % number
        await clients[0].send(b"again")
        again = await listener.receive()
        assert again.peer is not received[0].peer
        assert (again.peer, hash(again.peer)) == (received[0].peer, hash(received[0].peer))
        assert again.peer != received[1].peer
        for client in clients:
            await client.close()
