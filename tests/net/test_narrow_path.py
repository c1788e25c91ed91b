"""A path that takes smaller datagrams than the budget, on real sockets: the budget is lowered, and messages arrive."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from typing import Any

import pytest

from fairway.core.errors import BadMessage
from fairway.net import connect, listen, sockets

NARROW_BYTES = 572


class NarrowSocket(socket.socket):
    """A socket of a system that sends no datagram in fragments."""

    def send(self, data: Any, *flags: Any) -> int:
        if len(data) > NARROW_BYTES:
            raise OSError(errno.EMSGSIZE, "Message too long")
        return super().send(data, *flags)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sockets.open_connected

    def open_narrow(*arguments: Any) -> socket.socket:
        return NarrowSocket(fileno=opened(*arguments).detach())

    monkeypatch.setattr(sockets, "open_connected", open_narrow)


@pytest.mark.usefixtures("narrow")
async def test_rup_cuts_the_next_message_so_that_it_fits() -> None:
    async with (
        listen("rup://127.0.0.1:0") as listener,
        connect(listener.url, io="portable", close_timeout_s=0.1) as connection,
    ):
        lost = asyncio.ensure_future(connection.send(bytes(3_000)))
        await asyncio.sleep(0)
        await connection.send(b"a" * 3_000)
        assert (await listener.receive()).body == b"a" * 3_000
        # The kernel knows the loopback device's size only, so the limit is the next common one below 1,200.
        assert connection.statistics.socket.datagram_bytes_max == 548
        lost.cancel()


@pytest.mark.usefixtures("narrow")
async def test_a_message_that_cannot_be_cut_is_refused_once_the_path_is_known() -> None:
    async with (
        listen("pydevts://127.0.0.1:0") as listener,
        connect(listener.url, io="portable", close_timeout_s=0.1) as connection,
    ):
        lost = asyncio.ensure_future(connection.send(bytes(600)))
        await asyncio.sleep(0)
        with pytest.raises(BadMessage, match="what the path takes"):
            await connection.send(bytes(600))
        await connection.send(b"small")
        assert (await listener.receive()).body == b"small"
        lost.cancel()


WITH_A_NARROW_DEVICE = """
import asyncio, subprocess
from fairway.net import connect, listen

async def main():
    body = bytes(range(256)) * 400
    async with listen("rup://127.0.0.1:0") as listener, connect(listener.url) as connection:
        for _ in range(3):
            await connection.send(body)
            message = await listener.receive()
            assert message.body == body
            await message.peer.send(body)
            assert (await connection.receive()).body == body
        sent = connection.statistics
        print(sent.socket.path, sent.socket.datagram_bytes_max, sent.machine.messages_delivered)

subprocess.run(["ip", "link", "set", "lo", "mtu", "600", "up"], check=True)
asyncio.run(main())
"""


def test_a_device_that_takes_600_bytes_lowers_the_budget_and_every_message_arrives() -> None:
    """Where this machine does not permit a network namespace, that it says so is what is tested."""
    permitted = subprocess.run(["unshare", "-rn", "true"], capture_output=True, text=True, check=False, timeout=120)
    if permitted.returncode:
        assert "unshare" in permitted.stderr
        return
    script = [sys.executable, "-c", WITH_A_NARROW_DEVICE]
    found = subprocess.run(["unshare", "-rn", *script], capture_output=True, text=True, check=False, timeout=120)
    path, limit, delivered = found.stdout.split() or ("", "", found.stderr)
    assert delivered == "3"
    if path == "gso":
        assert limit == str(NARROW_BYTES)
        assert "takes datagrams of at most 572 bytes" in found.stderr
