"""`connect`, `listen` and `serve`: from a URL to something that sends and receives."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fairway import protocols
from fairway.core.errors import BadAddress, BadOption
from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Machine, Options, check_choice
from fairway.dtls import require_packages
from fairway.net import sockets
from fairway.net.connection import Closing, Connection
from fairway.net.conversations import Accepted, Conversations
from fairway.net.driver import Driver
from fairway.net.endpoint import Endpoint
from fairway.net.inbox import Inbox
from fairway.net.layers import EventHandler
from fairway.net.link import IO_CHOICES, Io, open_link
from fairway.net.listener import Listener, Server
from fairway.net.outcomes import AddressUnavailable, ConnectUnknown, within
from fairway.net.randomness import Cryptographic
from fairway.net.recorder import CALLER, LISTENER, Recorder, Trace
from fairway.net.urls import DTLS_FILES, Setting, Target, build_options, parse
from fairway.protocols import make_machine, options_class

if TYPE_CHECKING:
    from fairway.dtls.certificates import Role
    from fairway.net.security import Security

CLOSE_TIMEOUT_S = 5.0
"""What leaving the context waits for outstanding messages at the most."""
PACED_AT_ONCE = 1_024
"""Datagrams of a paced sender that may arrive before the socket is read: 2 ms of 5 Gbit/s."""

ANY_HOST = "0.0.0.0"
KEPT_BYTES = (32 << 20) - (64 << 10)
"""Just below the largest block that glibc takes as a hint."""


Opened = TypeVar("Opened", bound=Closing)


class Opening(Generic[Opened]):
    """Something to be opened: by `await`, to be closed by whoever did that, or for the time of an `async with`."""

    def __init__(self, work: Coroutine[Any, Any, Opened]) -> None:
        self._work = work
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._work.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._work
        return self._opened

    async def __aexit__(self, *failure: object) -> None:
        assert self._opened is not None
        await self._opened.close()


def connect(
    url: str,
    *,
    timeout: float | None = None,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Opening[Connection]:
    """Open a conversation on a socket of its own.

        async with fairway.connect("udpc://192.0.2.1:9000") as connection:
            await connection.send(b"hello")

    `await fairway.connect(url)` opens one that its caller closes. Options stand in the URL's query or are given by
    name. Raises `ConnectRefused`, or `ConnectUnknown` when no answer comes, after `timeout` seconds at the latest. The
    addresses of a name are tried one after another.
    """
    return Opening(within(_connect(url, io, trace, close_timeout_s, options), timeout, ConnectUnknown))


def listen(
    *urls: str,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Opening[Listener]:
    """Listen on one or more URLs; port 0 takes a free one, and `localhost` is both its addresses.

    async with fairway.listen("udpc://0.0.0.0:9000") as listener:
        async for message in listener:
            print(message.peer.url, message.body)
    """
    return Opening(_listen(urls, io, trace, close_timeout_s, options))


def serve(
    url: str | Sequence[str],
    handler: Callable[[Connection], Awaitable[None]],
    *,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Opening[Server]:
    """Listen, and run a handler for each connection that a peer opens; when it returns, the connection is closed.

    async with fairway.serve("udpc://0.0.0.0:9000", handler) as server:
        await server.serve_forever()
    """
    urls = [url] if isinstance(url, str) else url
    return Opening(_serve(_listen(urls, io, trace, close_timeout_s, options), handler, close_timeout_s))


async def _serve(
    listening: Coroutine[Any, Any, Listener], handler: Callable[[Connection], Awaitable[None]], close_timeout_s: float
) -> Server:
    return Server(await listening, handler, close_timeout_s)


async def _connect(
    url: str, io: Io, trace: Trace | None, close_timeout_s: float, options: Mapping[str, Setting]
) -> Connection:
    plan = _plan(url, options, io, "device")
    if not plan.target.host or not plan.target.port:
        raise BadAddress(f"{url!r} names no host and port to connect to")
    failure: Exception | None = None
    for family, address in await sockets.resolve_peer(plan.target):
        try:
            return await _connect_to(plan, family, address, trace, close_timeout_s)
        except (ConnectUnknown, AddressUnavailable) as error:
            failure = failure or error
    assert failure is not None
    raise failure


async def _connect_to(
    plan: Plan, family: socket.AddressFamily, address: Address, trace: Trace | None, close_timeout_s: float
) -> Connection:
    # A peer that may move answers from elsewhere, which a connected socket would not hear.
    moves = bool(getattr(plan.options, "migration", False)) and plan.security is None
    if moves:
        anywhere: Address = (ANY_HOST, 0) if family == socket.AF_INET else ("::", 0)
        sock = sockets.open_bound(family, anywhere, plan.window_bytes, plan.window)
    else:
        sock = sockets.open_connected(family, address, plan.window_bytes, plan.window)
    common = _Common(trace, close_timeout_s)
    endpoint = await _open_endpoint(plan, sock, common, common.conversations, remote=None if moves else address)
    try:
        inner = address if plan.security is None else plan.security.inner_address(address)
        connection = await common.served[0].connect(inner)
    except BaseException:
        await endpoint.close(0.0)
        raise
    connection._private = True
    return connection


async def _listen(
    urls: Sequence[str], io: Io, trace: Trace | None, close_timeout_s: float, options: Mapping[str, Setting]
) -> Listener:
    common = _Common(trace, close_timeout_s)
    await _open_all([_plan(url, options, io, "gateway") for url in urls], common, common.conversations)
    return Listener(common.served, common.inbox, common.accepted)


def plan_service(url: str, defaults: Mapping[str, Setting]) -> Plan:
    """Return what `open_service` opens for a URL: acknowledgement is deferred, and `defaults` hold where the URL sets
    nothing else. Nothing is bound yet."""
    missing = {name: value for name, value in defaults.items() if name not in parse(url).settings}
    return _plan(url, {**missing, "deferred": True}, "auto", "gateway")


async def open_service(
    plans: Sequence[Plan], make_handler: Callable[[Endpoint], EventHandler], *, handed: Sequence[int] = ()
) -> None:
    """Listen with deferred acknowledgement, for a service that survives restarts; it closes its endpoints itself.

    `make_handler` is given each endpoint before the first datagram is read. `handed` are the descriptors of sockets
    that were bound before, one for each plan.
    """
    await _open_all(plans, _Common(None, CLOSE_TIMEOUT_S), make_handler, handed)


async def _open_all(
    plans: Sequence[Plan],
    common: _Common,
    make_handler: Callable[[Endpoint], EventHandler],
    handed: Sequence[int] = (),
) -> None:
    if not plans:
        raise BadAddress("there is no URL to listen on")
    for plan in plans:
        # What batches are handled with takes a tenth of a second to load: loaded inside the first batch, it would let
        # the senders' timers run out.
        protocols.columns(plan.target.protocol)
    descriptors = iter(handed)
    endpoints: list[Endpoint] = []
    bound: list[socket.socket] = []
    try:
        for plan in plans:
            bound = await _bound(plan, next(descriptors, None))
            endpoints += [await _open_endpoint(plan, sock, common, make_handler, remote=None) for sock in bound]
    except BaseException:
        for endpoint in endpoints:
            await endpoint.close(0.0)
        for sock in bound:
            sock.close()
        raise


async def _bound(plan: Plan, descriptor: int | None) -> list[socket.socket]:
    window = plan.window
    if descriptor is not None:
        return [sockets.take_over(descriptor, plan.window_bytes, window)]
    found = await sockets.resolve(replace(plan.target, host=plan.target.host or ANY_HOST))
    if plan.target.host == sockets.LOCALHOST:
        return sockets.open_both(found, plan.window_bytes, window)
    return [sockets.open_bound(*found[0], plan.window_bytes, window)]


@dataclass(frozen=True, slots=True)
class Plan:
    """A URL, checked: what is to be opened."""

    target: Target
    options: Options
    io: Io
    security: Security | None = None

    @property
    def window_bytes(self) -> int:
        return self.window * self.options.datagram_bytes_max

    @property
    def window(self) -> int:
        """Datagrams that may arrive before any is read: where the window is a bound of memory, fewer than that."""
        return min(self.options.window, PACED_AT_ONCE) if self.options.controller == "model" else self.options.window

    def machine(self) -> Machine:
        """Build the machine that serves it."""
        machine = make_machine(self.target.protocol, self.options, Cryptographic())
        if self.security is not None:
            machine.limit_datagrams(self.options.datagram_bytes_max, fragments=False)
        return machine


class _Common:
    """What the endpoints of one listener share. The trace is begun when the first of them has its socket."""

    def __init__(self, trace: Trace | None, close_timeout_s: float) -> None:
        self.inbox = Inbox()
        self.accepted = Accepted()
        self.served: list[Conversations] = []
        self.close_timeout_s = close_timeout_s
        self._trace = trace
        self._recorder: Recorder | None = None

    def conversations(self, endpoint: Endpoint) -> Conversations:
        self.served.append(Conversations(endpoint, self.inbox, self.accepted))
        return self.served[-1]

    def recorder(self, point: str) -> Recorder | None:
        if self._recorder is None and self._trace is not None:
            self._recorder = Recorder(self._trace, point)
        return self._recorder


def _plan(url: str, given: Mapping[str, Setting], io: Io, role: Role) -> Plan:
    """Read a URL and join its query's settings with those given by name, which win.

    `io` is the socket's, all others are the protocol's.
    """
    target = parse(url)
    settings: dict[str, Setting] = {**target.settings, **given}
    chosen = str(settings.pop("io", io))
    check_choice("io", chosen, IO_CHOICES)
    security = _security(target, settings, role)
    options = build_options(options_class(target.protocol), settings)
    if security is not None:
        options = replace(options, datagram_bytes_max=security.budget_bytes(options.datagram_bytes_max))
    return Plan(target, options, next(choice for choice in IO_CHOICES if choice == chosen), security)


def _security(target: Target, settings: dict[str, Setting], role: Role) -> Security | None:
    """Take the settings of DTLS out of the others, if the scheme asks for it."""
    if not target.secure:
        for name in DTLS_FILES:
            if name in settings:
                raise BadOption(f"the option {name!r} is for DTLS: write {target.protocol}+dtls://")
        return None
    require_packages()
    from fairway.net.security import take_settings  # which loads OpenSSL

    security = take_settings(settings, role, target.host)
    security.read()
    if role == "gateway" and target.protocol == "udpc":
        # A session follows its device, and only its device, to another address.
        settings.setdefault("migration", True)
    return security


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of what is freed; other C libraries notice nothing. Once per process is enough.

    By default it gives what lies at the heap's end back to the system beyond 128 KiB, and asks for it again, page by
    page, with the next message: on a virtual machine that costs more than all else that a receiver of large messages
    does. When a block is freed that the system had given by itself, glibc takes blocks of that size as usual and keeps
    twice as much from then on. This block is never touched, so it costs a microsecond and no memory.
    """
    bytes(KEPT_BYTES)


async def _open_endpoint(
    plan: Plan,
    sock: socket.socket,
    common: _Common,
    make_handler: Callable[[Endpoint], EventHandler],
    *,
    remote: Address | None,
) -> Endpoint:
    """Build the layers on a bound or connected socket, from below; close the socket when that fails."""
    try:
        if getattr(plan.options, "message_bytes_max", 0) > UDP_PAYLOAD_BYTES_MAX:
            keep_freed_memory()
        link = await open_link(sock, io=plan.io, remote=remote)
        if plan.security is not None:
            link = plan.security.link(link, remote)
        driver = Driver(plan.machine(), link, common.recorder(LISTENER if remote is None else CALLER))
        try:
            timeout_s, scheme = common.close_timeout_s, plan.target.scheme
            endpoint = Endpoint(driver, plan.options, make_handler, close_timeout_s=timeout_s, scheme=scheme)
            endpoint.start()
        except BaseException:
            driver.close()
            raise
    except BaseException:
        sock.close()
        raise
    return endpoint
