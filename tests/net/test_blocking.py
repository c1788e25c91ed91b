"""The blocking twin does the same without a loop in sight."""

from __future__ import annotations

import threading

import pytest

from fairway.core.errors import BadMessage
from fairway.net import Message, blocking
from tests.acceptance.raw import PATIENCE_S
from tests.net.worlds import PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_go_both_ways(protocol: str) -> None:
    with blocking.listen(f"{protocol}://127.0.0.1:0") as listener, blocking.connect(listener.url) as connection:
        connection.send(b"there", timeout=PATIENCE_S)
        received = listener.receive(timeout=PATIENCE_S)
        assert received.body == b"there"
        blocking.answering(received.peer).send(b"and back", timeout=PATIENCE_S)
        assert connection.receive(timeout=PATIENCE_S).body == b"and back"
        assert connection.send_many([b"1", b"2"], timeout=PATIENCE_S) == 2
        assert len(listener.receive_many(timeout=PATIENCE_S)) >= 1
        assert connection.statistics.machine.messages_delivered == 3
        assert listener.statistics[0].machine.messages_received == 3


def test_a_wait_can_be_bounded_and_the_connection_stays_usable() -> None:
    with blocking.listen("udpc://127.0.0.1:0") as listener, blocking.connect(listener.url) as connection:
        with pytest.raises(TimeoutError):
            connection.receive(timeout=0.05)
        connection.send(b"still", timeout=PATIENCE_S)
        assert listener.receive(timeout=PATIENCE_S).body == b"still"
        assert connection.ping(timeout=PATIENCE_S) > 0


def test_a_wait_that_ends_as_a_message_comes_loses_nothing() -> None:
    with blocking.listen("udpc://127.0.0.1:0") as listener, blocking.connect(listener.url) as connection:

        def send() -> None:
            for _ in range(400):
                connection.send(b"x", timeout=PATIENCE_S)

        sending = threading.Thread(target=send)
        sending.start()
        received, quiet = 0, 0
        while sending.is_alive() or quiet < 200:
            try:
                listener.receive(timeout=0.0003)
            except TimeoutError:
                quiet = 0 if sending.is_alive() else quiet + 1
            else:
                received += 1
        assert received == 400


def test_a_request_is_answered_from_another_thread() -> None:
    with blocking.listen("udpc://127.0.0.1:0") as listener, blocking.connect(listener.url) as connection:

        def serve() -> None:
            blocking.reply(listener.receive(timeout=PATIENCE_S), b"42")

        thread = threading.Thread(target=serve)
        thread.start()
        assert connection.request(b"?", timeout=PATIENCE_S).body == b"42"
        thread.join(PATIENCE_S)


def test_only_a_request_is_answered() -> None:
    with blocking.listen("udpc://127.0.0.1:0") as listener, blocking.connect(listener.url) as connection:
        connection.send(b"no question", timeout=PATIENCE_S)
        with pytest.raises(BadMessage, match="only a request"):
            blocking.reply(listener.receive(timeout=PATIENCE_S), b"?")


def test_a_deferred_message_is_committed_and_iteration_ends_at_the_close() -> None:
    with blocking.listen("pydevts://127.0.0.1:0?deferred=true") as listener:

        def serve() -> None:
            for received in listener:
                assert isinstance(received, Message)
                received.commit()

        thread = threading.Thread(target=serve)
        thread.start()
        with blocking.connect(listener.url) as connection:
            connection.send(b"x", timeout=PATIENCE_S)
        listener.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
