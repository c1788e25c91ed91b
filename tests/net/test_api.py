"""What asyncio users expect: one call to open, timeouts, connections, servers that survive their clients."""

from __future__ import annotations

import asyncio
import errno
import inspect
import pydoc
import socket
import threading
from typing import Any

import pytest

import fairway
from fairway.net import Connection, Listener, Message, Server, connect, listen, serve
from tests.loopback import own_host
from tests.net.worlds import PROTOCOLS

SOON_S = 0.05
PATIENCE_S = 30
BRIEF = "silence=300ms&keepalive=50ms"
"""A udpc peer that says nothing for so long is gone."""


def vanish(connection: Connection) -> None:
    """Do what a killed process does: the socket is closed, and the peer hears nothing."""
    connection._endpoint.leave()


def silent_url(protocol: str, sock: socket.socket) -> str:
    sock.bind((own_host(), 0))
    host, port = sock.getsockname()
    return f"{protocol}://{host}:{port}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_connect_and_listen_are_awaited_or_entered(protocol: str) -> None:
    listener = await listen(f"{protocol}://127.0.0.1:0")
    connection = await connect(listener.url)
    await connection.send(b"awaited")
    await connection.close()
    async with connect(listener.url) as connection, listener:
        await connection.send(b"entered")
        assert {(await listener.receive()).body for _ in range(2)} == {b"awaited", b"entered"}
    with pytest.raises(fairway.ConversationClosed):
        await listener.receive()


def test_send_request_and_receive_are_coroutines_and_send_nowait_is_not() -> None:
    for method in (Connection.send, Connection.request, Connection.receive, Listener.receive):
        assert inspect.iscoroutinefunction(method)
    assert not inspect.iscoroutinefunction(Connection.send_nowait)
    for opening in (connect, listen, serve):
        assert inspect.signature(opening).return_annotation.startswith("Opening[")


@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
async def test_a_connect_takes_no_longer_than_its_timeout(protocol: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        url = silent_url(protocol, sock)
        with pytest.raises(fairway.ConnectUnknown, match=r"within 0\.05 s"):
            await connect(url, timeout=SOON_S)
        with pytest.raises(TimeoutError):
            async with connect(url, timeout=SOON_S):
                pass
        async with listen(f"{protocol}://{own_host()}:0") as listener:
            with pytest.raises(fairway.ConnectUnknown):
                await listener.connect(url, timeout=SOON_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_after_its_timeout_a_message_is_unknown_and_the_conversation_goes_on(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0?deferred=true") as listener, connect(listener.url) as connection:
        with pytest.raises(fairway.DeliveryUnknown, match=r"within 0\.05 s"):
            await connection.send(b"one", timeout=SOON_S)
        (await listener.receive(timeout=PATIENCE_S)).commit()
        second = connection.send_nowait(b"two")
        (await listener.receive(timeout=PATIENCE_S)).commit()
        await second


async def test_requests_and_receives_end_at_their_timeout() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        with pytest.raises(fairway.DeliveryUnknown):
            await connection.request(b"?", timeout=SOON_S)
        assert (await listener.receive()).body == b"?"
        for source in (connection, listener):
            with pytest.raises(TimeoutError, match=r"within 0\.05 s") as caught:
                await source.receive(timeout=SOON_S)
            assert not isinstance(caught.value, fairway.FairwayError)
            with pytest.raises(TimeoutError):
                await source.receive_many(timeout=SOON_S)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (fairway.ConnectUnknown, TimeoutError),
        (fairway.DeliveryUnknown, TimeoutError),
        (fairway.ConnectRefused, ConnectionRefusedError),
        (fairway.DeliveryRefused, ConnectionError),
        (fairway.ConversationClosed, ConnectionError),
    ],
)
def test_outcomes_are_the_errors_that_the_standard_library_has_for_them(
    error: type[fairway.FairwayError], kind: type[OSError]
) -> None:
    assert issubclass(error, kind)
    assert str(error("the reason")) == "the reason"


async def test_a_busy_port_is_an_oserror_with_its_number() -> None:
    async with listen("udpc://127.0.0.1:0") as listener:
        with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1") as caught:
            await listen("rup://127.0.0.1:0", listener.url)
        assert caught.value.errno == errno.EADDRINUSE
        assert isinstance(caught.value, fairway.BadAddress)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_connection_of_a_listener_receives_what_its_peer_sent_and_nothing_else(protocol: str) -> None:
    async with (
        listen(f"{protocol}://127.0.0.1:0") as listener,
        connect(listener.url) as one,
        connect(listener.url) as other,
    ):
        await one.send(b"from one")
        await other.send(b"from other")
        first = await listener.receive()
        peer = first.peer
        mine, theirs = (one, b"from other") if first.body == b"from one" else (other, b"from one")
        await asyncio.gather(mine.send_many([b"2", b"3"]), mine.send(b"4"))
        assert sorted([(await peer.receive()).body for _ in range(3)]) == [b"2", b"3", b"4"]
        assert (await listener.receive()).body == theirs
        with pytest.raises(TimeoutError):
            await listener.receive(timeout=SOON_S)


async def test_a_half_taken_run_goes_to_the_connection_that_receives_the_rest() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url, controller="eager") as connection:
        await connection.send_many([b"%d" % number for number in range(8)])
        taken = [await listener.receive() for _ in range(3)]
        rest = [(await taken[0].peer.receive()).body for _ in range(5)]
        assert [one.body for one in taken] + rest == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_listener_iterates_over_the_connections_that_peers_open(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(listener.url) as early:
        await early.send(b"early")
        connections = listener.connections()
        first = await anext(connections)
        assert (await first.receive()).body == b"early"
        async with connect(listener.url) as late:
            await late.send(b"late")
            second = await anext(connections)
            assert (await second.receive()).body == b"late"
            assert first != second
        await listener.close()
        assert [one async for one in connections] == []


async def test_a_listener_learns_when_a_peer_leaves_and_why() -> None:
    async with listen(f"udpc://127.0.0.1:0?{BRIEF}") as listener:
        connections = listener.connections()
        async with connect(listener.url):
            politely = await anext(connections)
        assert await politely.wait_closed() == "closed by the peer"
        connection = await connect(f"{listener.url}?{BRIEF}")
        await connection.send(b"last words")
        silently = await anext(connections)
        vanish(connection)
        assert [message.body async for message in silently] == [b"last words"]
        assert silently.closed == await silently.wait_closed() == "the peer is silent"


async def shout(connection: Connection) -> None:
    async for message in connection:
        await connection.send(message.body.upper())


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_runs_a_handler_for_each_connection(protocol: str) -> None:
    async with serve(f"{protocol}://127.0.0.1:0", shout) as server:
        async with connect(server.url) as one, connect(server.urls[0]) as other:
            await asyncio.gather(one.send(b"one"), other.send(b"other"))
            assert (await one.receive()).body == b"ONE"
            assert (await other.receive()).body == b"OTHER"
        assert server.statistics[0].machine.messages_received == 2


async def test_a_server_survives_clients_that_vanish_and_handlers_that_fail() -> None:
    complaints: list[dict[str, Any]] = []
    ended: list[str | None] = []

    async def handler(connection: Connection) -> None:
        try:
            async for message in connection:
                if message.body == b"fail":
                    raise ZeroDivisionError
                await connection.send(message.body)
        finally:
            ended.append(connection.closed)

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with serve(f"udpc://127.0.0.1:0?{BRIEF}", handler) as server:
        gone = await connect(f"{server.url}?{BRIEF}")
        await gone.send(b"anyone?")
        vanish(gone)
        failing = await connect(server.url)
        await failing.send(b"fail")
        assert await failing.wait_closed() == "closed by the peer"
        await failing.close()
        async with connect(server.url) as connection:
            await connection.send(b"still there?")
            assert (await connection.receive(timeout=PATIENCE_S)).body == b"still there?"
        while len(ended) < 3:
            await asyncio.sleep(0.01)
    assert sorted(map(str, ended)) == ["None", "closed by the peer", "the peer is silent"]
    assert [type(context["exception"]) for context in complaints] == [ZeroDivisionError]


async def test_unread_messages_of_ended_handlers_do_not_stop_a_server() -> None:
    async def handler(connection: Connection) -> None:
        await connection.receive()

    async with serve("udpc://127.0.0.1:0?open_receipts_max=4", handler) as server:
        for _ in range(10):
            async with connect(server.url) as connection:
                await connection.send_many([b"x"] * 3)


async def test_serve_forever_ends_when_it_is_cancelled_and_closes_the_server() -> None:
    server = await serve("udpc://127.0.0.1:0", shout)
    serving = asyncio.ensure_future(server.serve_forever())
    async with connect(server.url) as connection:
        await connection.send(b"here")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert await connection.wait_closed()


async def test_a_handler_that_ignores_the_end_is_cancelled() -> None:
    async def stubborn(connection: Connection) -> None:
        await asyncio.get_running_loop().create_future()

    server = await serve("udpc://127.0.0.1:0", stubborn, close_timeout_s=SOON_S)
    async with connect(server.url) as connection:
        await connection.send(b"hello")
        await server.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_is_committed_from_another_thread(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0?deferred=true") as listener, connect(listener.url) as connection:
        sent = connection.send_nowait(b"precious")
        message = await listener.receive()
        thread = threading.Thread(target=message.commit)
        thread.start()
        async with asyncio.timeout(PATIENCE_S):
            await sent
        thread.join()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_localhost_is_both_its_addresses(protocol: str) -> None:
    async with listen(f"{protocol}://localhost:0") as listener:
        four, six = listener.urls
        assert (four.rpartition(":")[0], six.rpartition(":")[0]) == (
            f"{protocol}://127.0.0.1",
            f"{protocol}://[::1]",
        )
        port = four.rpartition(":")[2]
        assert six.endswith(f":{port}")
        for url in (four, six, f"{protocol}://localhost:{port}"):
            async with connect(url) as connection:
                await connection.send(url.encode())
                assert (await listener.receive()).body == url.encode()


@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_listener_on_either_loopback_address_is_reached_as_localhost(protocol: str, host: str) -> None:
    async with listen(f"{protocol}://{host}:0") as listener:
        port = listener.url.rpartition(":")[2]
        async with connect(f"{protocol}://localhost:{port}") as connection:
            await connection.send(b"found")


def test_dir_and_help_show_everything_before_anything_is_used() -> None:
    assert set(fairway.__all__) <= set(dir(fairway))
    assert all(getattr(fairway, name) is not None for name in fairway.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        fairway.no_such_name  # noqa: B018
    shown = pydoc.plain(pydoc.render_doc(fairway))
    for name in ("class Connection", "class Server", "connect(url", "serve(url", "send_nowait", "DeliveryUnknown"):
        assert name in shown


PUBLIC = {
    Connection: """address closed device identity peer protocol session statistics url
        send send_nowait send_many request ping receive receive_many snapshot wait_closed close""",
    Listener: "url urls statistics connect connections receive receive_many restore close",
    Server: "url urls statistics serve_forever close",
    Message: "body device id peer receipt reliable commit",
}


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: str(kind.__name__))
def test_what_is_public_is_for_applications(kind: type) -> None:
    assert {name for name in dir(kind) if not name.startswith("_")} == set(PUBLIC[kind].split())
