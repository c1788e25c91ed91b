"""`connect` and `listen`: from a URL to something that sends and receives."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairway import protocols
from fairway.core.errors import BadAddress, BadOption
from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Machine, Options, check_choice
from fairway.net import sockets
from fairway.net.chance import Cryptographic
from fairway.net.connection import Connection
from fairway.net.endpoint import Endpoint
from fairway.net.inbox import Inbox
from fairway.net.link import IO_CHOICES, Io, Link, open_link
from fairway.net.listener import Listener
from fairway.net.memory import keep_freed_memory
from fairway.net.recorder import CALLER, LISTENER, Recorder, Trace
from fairway.net.security import SecureLink, Security, budget_bytes, take_settings
from fairway.net.urls import DTLS_FILES, Setting, Target, build_options, format_url, parse
from fairway.protocols import make_machine, options_class

if TYPE_CHECKING:
    from fairway.dtls.certificates import Role

CLOSE_TIMEOUT_S = 5.0
"""What leaving the context waits for outstanding messages at the most."""

ANY_HOST = "0.0.0.0"

Prepare = Callable[[Endpoint, str], None]


@asynccontextmanager
async def connect(
    url: str,
    *,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> AsyncIterator[Connection]:
    """Opens a conversation on a socket of its own, for the time of the context.

        async with fairway.connect("udpc://192.0.2.1:9000") as connection:
            await connection.send(b"hello")

    Options stand in the URL's query or are given by name. Raises `ConnectRefused` or `ConnectUnknown`.
    """
    connection = await open_connection(url, io=io, trace=trace, close_timeout_s=close_timeout_s, **options)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def listen(
    *urls: str,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> AsyncIterator[Listener]:
    """Listens on one or more URLs for the time of the context; port 0 takes a free one.

    async with fairway.listen("udpc://0.0.0.0:9000") as listener:
        async for message in listener:
            print(message.peer.url, message.body)
    """
    listener = await open_listener(*urls, io=io, trace=trace, close_timeout_s=close_timeout_s, **options)
    try:
        yield listener
    finally:
        await listener.close()


async def open_connection(
    url: str,
    *,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Connection:
    """Opens a conversation on a socket of its own; who calls this closes it."""
    plan = _plan(url, options, io, "device")
    if not plan.target.host or not plan.target.port:
        raise BadAddress(f"{url!r} names no host and port to connect to")
    family, address = await sockets.resolve_peer(plan.target)
    # A peer that may move answers from elsewhere, which a connected socket would not hear.
    moves = bool(getattr(plan.options, "migration", False)) and plan.security is None
    if moves:
        anywhere: Address = (ANY_HOST, 0) if family == socket.AF_INET else ("::", 0)
        sock = sockets.open_bound(family, anywhere, plan.window_bytes, plan.options.window)
    else:
        sock = sockets.open_connected(family, address, plan.window_bytes, plan.options.window)
    common = _Common(Inbox(), trace, close_timeout_s)
    endpoint = await _open_endpoint(plan, sock, common, remote=None if moves else address)
    try:
        inner = address if plan.security is None else plan.security.inner_address(address)
        connection = await endpoint.connect(inner, None)
    except BaseException:
        await endpoint.close(0.0)
        raise
    connection.private = True
    return connection


async def open_listener(
    *urls: str,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Listener:
    """Listens on one or more URLs; who calls this closes it."""
    plans = [_plan(url, options, io, "gateway") for url in urls]
    return await _open_listener(plans, _Common(Inbox(), trace, close_timeout_s), ())


def plan_service(url: str, defaults: Mapping[str, Setting]) -> Plan:
    """Return what `open_service` opens for a URL: acknowledgement is deferred, and `defaults` hold where the URL sets
    nothing else. Nothing is bound yet."""
    missing = {name: value for name, value in defaults.items() if name not in parse(url).settings}
    return _plan(url, {**missing, "deferred": True}, "auto", "gateway")


async def open_service(plans: Sequence[Plan], prepare: Prepare, *, handed: Sequence[int] = ()) -> Listener:
    """Listens with deferred acknowledgement, for a service that survives restarts; who calls this closes it.

    `prepare` is given each endpoint and its URL before the first datagram is read. `handed` are the descriptors of
    sockets that were bound before, one for each plan.
    """
    return await _open_listener(plans, _Common(Inbox(), None, CLOSE_TIMEOUT_S, prepare), handed)


async def _open_listener(plans: Sequence[Plan], common: _Common, handed: Sequence[int]) -> Listener:
    if not plans:
        raise BadAddress("there is no URL to listen on")
    for plan in plans:
        # What batches are handled with takes a tenth of a second to load: loaded inside the first batch, it would let
        # the senders' timers run out.
        protocols.columns(plan.target.protocol)
    descriptors = iter(handed)
    endpoints: list[Endpoint] = []
    try:
        for plan in plans:
            descriptor = next(descriptors, None)
            if descriptor is None:
                family, address = await sockets.resolve(_anywhere(plan.target))
                sock = sockets.open_bound(family, address, plan.window_bytes, plan.options.window)
            else:
                sock = sockets.take_over(descriptor, plan.window_bytes, plan.options.window)
            endpoints.append(await _open_endpoint(plan, sock, common, remote=None))
    except BaseException:
        for endpoint in endpoints:
            await endpoint.close(0.0)
        raise
    return Listener(endpoints, common.inbox)


@dataclass(frozen=True, slots=True)
class Plan:
    """A URL, checked: what is to be opened."""

    target: Target
    options: Options
    io: Io
    security: Security | None = None

    @property
    def window_bytes(self) -> int:
        return self.options.window * self.options.datagram_bytes_max

    @property
    def takes_large_messages(self) -> bool:
        return getattr(self.options, "message_bytes_max", 0) > UDP_PAYLOAD_BYTES_MAX

    def machine(self) -> Machine:
        """Build the machine that serves it."""
        machine = make_machine(self.target.protocol, self.options, Cryptographic())
        if self.security is not None:
            machine.limit_datagrams(self.options.datagram_bytes_max, fragments=False)
        return machine


class _Common:
    """What the endpoints of one listener share. The trace is begun when the first of them has its socket."""

    def __init__(
        self, inbox: Inbox, trace: Trace | None, close_timeout_s: float, prepare: Prepare | None = None
    ) -> None:
        self.inbox = inbox
        self.close_timeout_s = close_timeout_s
        self.prepare = prepare
        self._trace = trace
        self._recorder: Recorder | None = None

    def recorder(self, point: str) -> Recorder | None:
        if self._recorder is None and self._trace is not None:
            self._recorder = Recorder(self._trace, point)
        return self._recorder


def _plan(url: str, given: Mapping[str, Setting], io: Io, role: Role) -> Plan:
    """Reads a URL and joins its query's settings with those given by name, which win.

    `io` is the socket's, all others are the protocol's.
    """
    target = parse(url)
    settings: dict[str, Setting] = {**target.settings, **given}
    chosen = str(settings.pop("io", io))
    check_choice("io", chosen, IO_CHOICES)
    security = _security(target, settings, role)
    options = build_options(options_class(target.protocol), settings)
    if security is not None:
        options = replace(options, datagram_bytes_max=budget_bytes(options.datagram_bytes_max))
    return Plan(target, options, next(choice for choice in IO_CHOICES if choice == chosen), security)


def _security(target: Target, settings: dict[str, Setting], role: Role) -> Security | None:
    """Take the settings of DTLS out of the others, if the scheme asks for it."""
    if not target.secure:
        for name in DTLS_FILES:
            if name in settings:
                raise BadOption(f"the option {name!r} is for DTLS: write {target.protocol}+dtls://")
        return None
    security = take_settings(settings, role, target.host)
    security.read()
    if role == "gateway" and target.protocol == "udpc":
        # A session follows its device, and only its device, to another address.
        settings.setdefault("migration", True)
    return security


def _anywhere(target: Target) -> Target:
    return target if target.host else replace(target, host=ANY_HOST)


async def _open_endpoint(plan: Plan, sock: socket.socket, common: _Common, remote: Address | None) -> Endpoint:
    """Puts a machine on a bound or connected socket; closes the socket when that fails."""
    try:
        if plan.takes_large_messages:
            keep_freed_memory()
        timeout_s = common.close_timeout_s
        recorder = common.recorder(LISTENER if remote is None else CALLER)
        endpoint = Endpoint(plan.machine(), plan.options, common.inbox, recorder, close_timeout_s=timeout_s)
        endpoint.scheme = plan.target.scheme
        try:
            if common.prepare is not None:
                common.prepare(endpoint, format_url(plan.target.scheme, sock.getsockname()))
            link = await _open_link(plan, sock, endpoint, remote)
        except BaseException:
            await endpoint.close(0.0)
            raise
    except BaseException:
        sock.close()
        raise
    endpoint.driver.attach(link)
    return endpoint


async def _open_link(plan: Plan, sock: socket.socket, endpoint: Endpoint, remote: Address | None) -> Link:
    """Put the socket on the loop, with DTLS between it and the driver if the plan says so."""
    if plan.security is None:
        return await open_link(sock, endpoint.driver, io=plan.io, remote=remote)
    secure = SecureLink(plan.security, endpoint.driver, remote)
    return secure.attach(await open_link(sock, secure, io=plan.io, remote=remote))
