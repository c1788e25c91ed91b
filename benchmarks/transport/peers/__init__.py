"""The peers: who is measured, what each can do, and where its two sides are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.transport.loads import LOADS, Announce, Load

ALL = tuple(LOADS)
WITHOUT_AWAITABLES = ("bulk", "batches-64", "batches-1024", "ping-pong")


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    module: str
    """The module of this package that has `open_sender` and `serve`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    loads: tuple[str, ...] = ALL
    needs: str | None = None
    """The package that must be installed."""
    reliable: bool = True
    """Repairs what is lost; others are not measured under loss."""
    datagrams: bool = True
    """Runs over UDP, so that a relay can stand between its sides."""

    @property
    def installed(self) -> bool:
        return self.needs is None or find_spec(self.needs) is not None

    async def open_sender(self, host: str, port: int, load: Load) -> Any:
        """Return the calling side, connected."""
        return await self._module().open_sender(host, port, load, **self.settings)

    async def serve(self, host: str, load: Load, announce: Announce) -> None:
        """Receive, compare and confirm until cancelled; announce the address first."""
        await self._module().serve(host, load, announce, **self.settings)

    def _module(self) -> Any:
        return import_module(f"{__name__}.{self.module}")


def _fairway(name: str, title: str, protocol: str, controller: str, io: str = "auto") -> Peer:
    settings = {"protocol": protocol, "controller": controller, "io": io}
    return Peer(name, title, "endpoints", settings, loads=ALL if io == "auto" else ("bulk",))


PLAIN = ("rup", "udpc", "mrp", "pydevts")
BESIDE_DTLS = (*PLAIN, "aioquic", *(f"{name}-dtls" for name in PLAIN))
"""What encryption costs: the same four without it, and QUIC, which always encrypts."""

PEERS = {
    peer.name: peer
    for peer in (
        Peer("raw", "raw UDP", "raw", {}, ("bulk", "ping-pong"), reliable=False),
        Peer("raw-gso", "raw GSO/GRO", "raw", {"offload": "yes"}, ("bulk",), reliable=False),
        Peer("tcp", "asyncio TCP", "tcp", datagrams=False),
        Peer("aioquic", "aioquic", "quic", needs="aioquic"),
        Peer("pyenet", "pyenet", "enet_peer", loads=WITHOUT_AWAITABLES, needs="enet"),
        Peer("kcp", "kcp", "kcp_peer", loads=WITHOUT_AWAITABLES, needs="kcp"),
        _fairway("rup", "rup, eager", "rup", "eager"),
        _fairway("rup-mmsg", "rup, mmsg", "rup", "eager", "mmsg"),
        _fairway("rup-portable", "rup, portable", "rup", "eager", "portable"),
        _fairway("rup-newreno", "rup, newreno", "rup", "newreno"),
        _fairway("udpc", "udpc, eager", "udpc", "eager"),
        _fairway("udpc-newreno", "udpc, newreno", "udpc", "newreno"),
        _fairway("mrp", "mrp, eager", "mrp", "eager"),
        _fairway("mrp-newreno", "mrp, newreno", "mrp", "newreno"),
        _fairway("pydevts", "pydevts, eager", "pydevts", "eager"),
        _fairway("pydevts-newreno", "pydevts, newreno", "pydevts", "newreno"),
        *(_fairway(f"{name}-dtls", f"{name}, DTLS", f"{name}+dtls", "eager") for name in PLAIN),
    )
}
