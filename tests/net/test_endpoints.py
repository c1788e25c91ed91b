"""One interface, four protocols, every path: messages arrive once, exactly, and their senders hear of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairway import protocols
from fairway.core.errors import BadAddress, BadMessage, BadOption, CallerError, NotSupported
from fairway.net import ConversationClosed, DeliveryRefused, DeliveryUnknown, Request, connect, listen
from tests.net.worlds import PATHS, PROTOCOLS, io_of


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_messages_go_both_ways_over_every_path(protocol: str, path: str) -> None:
    io = io_of(path)
    async with listen(f"{protocol}://127.0.0.1:0", io=io) as listener, connect(listener.url, io=io) as connection:
        await connection.send(b"there")
        there = await listener.receive()
        assert there.body == b"there"
        await there.peer.send(b"and back")
        assert (await connection.receive()).body == b"and back"
        assert connection.statistics.socket.path == path
        assert connection.statistics.machine.messages_delivered == 1
        assert listener.statistics[0].machine.messages_received == 1


@pytest.mark.parametrize(
    ("protocol", "path"), [*((name, "gso") for name in PROTOCOLS), *(("udpc", path) for path in PATHS[1:])]
)
async def test_many_messages_arrive_once_and_exactly(protocol: str, path: str) -> None:
    bodies = [b"%d:" % number + bytes(number % 90) for number in range(1_500)]
    io = io_of(path)
    async with listen(f"{protocol}://127.0.0.1:0", io=io) as listener, connect(listener.url, io=io) as connection:
        sent = connection.send_many(bodies)
        received: list[bytes] = []
        while len(received) < len(bodies):
            received.extend((await listener.receive_many()).bodies)
        assert await sent == len(bodies)
        ordered = protocols.protocol(protocol).ordered
        assert (received if ordered else sorted(received)) == (bodies if ordered else sorted(bodies))


async def test_a_body_that_a_protocol_cannot_carry_is_the_callers_error_and_harms_no_other() -> None:
    async with listen("pydevts://127.0.0.1:0") as listener, connect(listener.url) as connection:
        good, bad, also_good = (connection.send_nowait(body) for body in (b"1", bytes(65_500), b"2"))
        await good
        await also_good
        with pytest.raises(BadMessage):
            await bad
        with pytest.raises(BadMessage, match="bytes"):
            await connection.send("text")  # type: ignore[arg-type]
        with pytest.raises(BadMessage):
            await connection.send_many([b"3", bytes(65_500)])


async def test_several_urls_of_several_protocols_share_one_inbox() -> None:
    urls = [f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS]
    async with listen(*urls, "udpc://[::1]:0") as listener:
        for url in listener.urls:
            async with connect(url) as connection:
                await connection.send(url.encode())
        received = sorted([(await listener.receive()).body.decode() for _ in listener.urls])
        assert received == sorted(listener.urls)
        assert [one.protocol for one in listener.statistics] == [*PROTOCOLS, "udpc"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_equal_nodes_talk_through_their_listening_sockets(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as one, listen(f"{protocol}://127.0.0.1:0") as other:
        to_other = await one.connect(other.url)
        await to_other.send(b"hello from one")
        received = await other.receive()
        assert received.peer.url == one.url
        await received.peer.send(b"hello from other")
        assert (await to_other.receive()).body == b"hello from other"
        await to_other.close()


async def test_a_listener_connects_only_with_what_it_listens_with() -> None:
    async with listen("udpc://127.0.0.1:0") as listener:
        with pytest.raises(BadAddress, match="no socket for"):
            await listener.connect("rup://127.0.0.1:9")
        with pytest.raises(BadAddress, match="no socket for"):
            await listener.connect("udpc://[::1]:9")
        with pytest.raises(BadOption, match="options"):
            await listener.connect("udpc://127.0.0.1:9?window=1")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_with_deferral_a_message_is_acknowledged_at_its_commit(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0?deferred=true") as listener, connect(listener.url) as connection:
        sends = [connection.send_nowait(b"%d" % number) for number in range(5)]
        held = [await listener.receive() for _ in sends]
        answered = await connection.ping() if protocol != "rup" else 0
        assert answered >= 0
        assert not any(future.done() for future in sends)
        for one in held:
            one.commit()
        await asyncio.gather(*sends)
        batch_sent = connection.send_many([b"a", b"b", b"c"])
        taken = 0
        while taken < 3:
            batch = await listener.receive_many()
            taken += len(batch)
            batch.commit()
        assert await batch_sent == 3


async def test_requests_are_answered_and_may_ask_back() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        asked = asyncio.ensure_future(connection.request(b"how much?"))
        request = await listener.receive()
        assert isinstance(request, Request)
        assert not request.asynchronous
        back = asyncio.ensure_future(request.reply_with_request(b"of what?"))
        answer = await asked
        assert (answer.body, isinstance(answer, Request)) == (b"of what?", True)
        assert isinstance(answer, Request)
        await answer.reply(b"of that")
        assert (await back).body == b"of that"
        later = asyncio.ensure_future(connection.request(b"no hurry", asynchronous=True))
        lazy = await listener.receive()
        assert isinstance(lazy, Request)
        assert lazy.asynchronous
        await lazy.reply(b"done")
        assert (await later).body == b"done"


@pytest.mark.parametrize("when", ["before the reply", "while the reply waits"])
async def test_a_reply_that_nobody_waits_for_does_not_raise(when: str) -> None:
    async with listen("udpc://127.0.0.1:0") as listener:
        async with connect(listener.url) as connection:
            asked = asyncio.ensure_future(connection.request(b"how much?"))
            request = await listener.receive()
            assert isinstance(request, Request)
            reply = None
            if when == "while the reply waits":
                request.peer._endpoint.ready = lambda outbox: None  # type: ignore[method-assign]  # never its turn
                reply = request.reply(b"42")
        with pytest.raises(DeliveryUnknown):
            await asked
        while request.peer.closed is None:
            await asyncio.sleep(0.01)
        await (reply or request.reply(b"42"))
        with pytest.raises(ConversationClosed):
            await request.peer.send(b"are you there?")
        with pytest.raises(ConversationClosed):
            await request.reply_with_request(b"of what?")


async def test_a_plain_message_is_sent_without_acknowledgement() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        await connection.send(b"maybe", reliable=False)
        received = await listener.receive()
        assert (received.body, received.reliable) == (b"maybe", False)


@pytest.mark.parametrize("protocol", ["mrp", "rup", "pydevts"])
async def test_what_a_protocol_cannot_do_is_an_error_that_says_so(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(listener.url) as connection:
        with pytest.raises(NotSupported):
            await connection.request(b"?")
        with pytest.raises(NotSupported):
            await connection.send(b"plain", reliable=False)
        await connection.send(b"still usable")


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "pydevts"])
async def test_ping_gives_a_round_trip_time(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(listener.url) as connection:
        assert 0 < await connection.ping() < 5_000_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_iteration_ends_when_the_listener_is_closed(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener:
        seen: list[bytes] = []

        async def read() -> None:
            seen.extend([received.body async for received in listener])

        reading = asyncio.ensure_future(read())
        async with connect(listener.url) as connection:
            for body in (b"1", b"2", b"3"):
                await connection.send(body)
        await listener.close()
        await reading
        assert seen == [b"1", b"2", b"3"]
        with pytest.raises(ConversationClosed):
            await listener.receive()


async def test_a_peer_that_closes_ends_the_conversation_and_what_it_sent_stays_readable() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        await connection.send(b"hi")
        peer = (await listener.receive()).peer
        await peer.send(b"last words")
        await peer.close()
        assert (await connection.receive()).body == b"last words"
        with pytest.raises(ConversationClosed, match="closed by the peer"):
            await connection.receive()
        with pytest.raises(ConversationClosed):
            await connection.send(b"too late")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("tcp://127.0.0.1:1", "no protocol"),
        ("udpc://127.0.0.1", "port"),
        ("udpc://127.0.0.1:1?windw=3", "known are .*connect_timeout, .*, window"),
        ("udpc://127.0.0.1:1?window=0", "window is 0"),
        ("udpc://127.0.0.1:1?io=fast", "io is 'fast'"),
        ("udpc://:9000", "names no host"),
        ("udpc://127.0.0.1:0", "names no host"),
    ],
)
async def test_a_url_that_cannot_be_called_is_refused_before_anything_is_opened(url: str, wrong: str) -> None:
    with pytest.raises(CallerError, match=wrong):
        async with connect(url):
            pass


async def test_a_failing_machine_ends_its_endpoint_and_tells_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as connection:
        await connection.send(b"fine")

        def fail(*arguments: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(connection._endpoint.machine, "wake", fail)
        monkeypatch.setattr(connection._endpoint.driver, "_receive", fail)
        with pytest.raises((ConversationClosed, DeliveryRefused, Exception), match="ZeroDivision"):
            await connection.send(b"not fine")
        with pytest.raises(ConversationClosed, match="ZeroDivision"):
            await connection.receive()
    assert len(complaints) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_is_no_message_harms_nobody_but_its_caller(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(listener.url) as connection:
        for wrong in (["text"], b"abc", [b"right", 7]):
            with pytest.raises(BadMessage, match="a message is bytes"):
                await connection.send_many(wrong)  # type: ignore[arg-type]
        await connection.send(memoryview(b"abcdef")[::2])
        assert (await listener.receive()).body == b"ace"
        assert await connection.send_many([memoryview(b"abcdef")[::2], bytearray(b"x")]) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_listener_on_all_addresses_is_reached_by_its_own_url(protocol: str) -> None:
    async with listen(f"{protocol}://0.0.0.0:0") as listener, connect(listener.url) as connection:
        await connection.send(b"here")
        assert (await listener.receive()).body == b"here"


async def test_one_option_is_enough_for_a_rup_message_above_64_mib() -> None:
    body = bytes(range(256)) * (65 << 12)
    option = "?message_bytes_max=1GiB"
    # The controller has no part in it: without the wait for a cautious one it takes a twentieth of the time.
    hurried = f"{option}&controller=eager"
    async with listen(f"rup://127.0.0.1:0{option}") as listener, connect(listener.url + hurried) as connection:
        sent = connection.send_nowait(body)
        assert (await listener.receive()).body == body
        await sent


async def test_a_message_that_will_never_be_taken_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        listen("rup://127.0.0.1:0?message_bytes_max=1000") as listener,
        connect(f"{listener.url}?silence=300ms&rto_initial=20ms") as connection,
    ):
        with pytest.raises(DeliveryUnknown):
            await asyncio.gather(connection.send_nowait(bytes(3_000)), connection.send_nowait(bytes(3_000)))
        assert listener.statistics[0].machine.dropped["too_large"] > 1
    (said,) = [record.getMessage() for record in caplog.records]
    assert "message_bytes_max" in said


@pytest.mark.parametrize("protocol", ["rup", "pydevts"])
async def test_a_client_is_heard_again_after_the_server_closed_its_conversation(protocol: str) -> None:
    async with listen(f"{protocol}://127.0.0.1:0") as listener, connect(listener.url) as connection:
        for body in (b"first", b"second"):
            await connection.send(body)
            received = await listener.receive()
            assert received.body == body
            await received.peer.close()
