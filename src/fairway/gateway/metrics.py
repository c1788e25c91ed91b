"""What Prometheus is told, read off the counters when it asks: serving messages pays nothing for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fairway.core.statistics import Statistics
from fairway.gateway.figures import Figures

if TYPE_CHECKING:
    from fairway.gateway.adapter import EndpointAdapter
    from fairway.gateway.guard import Guard

REQUEST_BYTES_MAX = 8_192
REQUEST_S = 5.0
CONNECTIONS_MAX = 64
"""Idle connections must not use up the files that spooling and sealing need."""
SESSIONS = ("conversations_opened", "conversations_closed")
NOT_COUNTERS = (*SESSIONS, "rtt_us", "dropped")
ENDPOINT = ("endpoint",)

DTLS_GAUGES = {
    "associations": "DTLS associations that are up.",
    "half_open": "DTLS handshakes under way.",
}
DTLS_COUNTERS = {
    "handshakes": "DTLS handshakes that were completed.",
    "renewals": "Those of them that replaced an association of the same device.",
    "moved": "Those by which a client went on at another address.",
    "hellos": "Hellos that were answered with a cookie and forgotten.",
    "hints": "Records of associations that this gateway does not know, answered with a hint.",
}
DTLS_REASONS = {
    "failed": "DTLS handshakes that failed, by reason.",
    "dropped": "Datagrams and associations that the DTLS layer dropped, by reason.",
}


class Gatherer(Collector):
    """Turns the figures of one gateway into metrics."""

    def __init__(self, gateway: str, figures: Figures, adapters: Sequence[EndpointAdapter], guard: Guard) -> None:
        self._gateway = gateway
        self._figures = figures
        self._adapters = adapters
        self._guard = guard

    def collect(self) -> Iterator[Metric]:
        yield from self._own()
        yield from self._messages()
        yield from self._machines()
        yield from self._drops()
        yield from self._associations()

    def _own(self) -> Iterator[Metric]:
        figures = self._figures
        for name, meaning, value in (
            ("backlog_messages", "Messages that are committed and not yet sealed.", figures.backlog_messages),
            ("backlog_bytes", "Their bytes.", figures.backlog_bytes),
            ("stalled", "1 while nothing is acknowledged because nothing can be written.", bool(figures.stall)),
            ("sealing_stalled", "1 while no segment can be made.", bool(figures.sealing_stall)),
        ):
            yield self._family(GaugeMetricFamily, name, meaning, (), [((), value)])
        for name, meaning, value in (
            ("stalls", "Commits that failed for want of room and were tried again.", figures.stalls),
            ("sealed_segments", "Segments that were made.", figures.segments),
            ("sealed_messages", "Messages in them.", figures.segment_messages),
            ("sealed_bytes", "Bytes of their files.", figures.segment_bytes),
        ):
            yield self._family(CounterMetricFamily, name, meaning, (), [((), value)])
        for name, meaning, spread in (
            ("commit_seconds", "How long a commit takes.", figures.commit_spread),
            ("acknowledge_seconds", "From the first arrival of a commit to its acknowledgements.", figures.ack_spread),
        ):
            family = HistogramMetricFamily(f"fairway_gateway_{name}", meaning, labels=["gateway"])
            family.add_metric([self._gateway], buckets=spread.cumulative(), sum_value=spread.total)
            yield family

    def _messages(self) -> Iterator[Metric]:
        for name, meaning, counts in (
            ("messages", "Messages that were committed.", self._figures.messages),
            ("message_bytes", "Their bytes.", self._figures.bytes),
        ):
            yield self._family(CounterMetricFamily, name, meaning, ("protocol", "kind"), counts.items())

    def _machines(self) -> Iterator[Metric]:
        statistics = [((one.url,), one.endpoint.statistics.machine) for one in self._adapters]
        sessions = [(url, told.conversations_opened - told.conversations_closed) for url, told in statistics]
        yield self._family(GaugeMetricFamily, "sessions", "Conversations that are open.", ENDPOINT, sessions)
        for name in (field.name for field in fields(Statistics) if field.name not in NOT_COUNTERS):
            meaning = f"{name.replace('_', ' ')}, as the protocol counts them.".capitalize()
            samples = [(url, getattr(told, name)) for url, told in statistics]
            yield self._family(CounterMetricFamily, f"protocol_{name}", meaning, ENDPOINT, samples)

    def _drops(self) -> Iterator[Metric]:
        samples = [((protocol, f"guard_{reason}"), count) for (protocol, reason), count in self._guard.refused.items()]
        for adapter in self._adapters:
            told = adapter.endpoint.statistics
            socket = {
                "kernel_buffer_full": told.socket.kernel_dropped,
                "send_queue_full": told.socket.send_queue_dropped,
            }
            for reason, count in {**told.machine.dropped, **socket}.items():
                samples.append(((adapter.url, reason), count))
        meaning = "Datagrams that were not taken, by reason."
        yield self._family(CounterMetricFamily, "dropped", meaning, ("where", "reason"), samples)

    def _associations(self) -> Iterator[Metric]:
        secure = [(one.url, told) for one in self._adapters if (told := one.endpoint.statistics.dtls) is not None]
        for kind, meanings in ((GaugeMetricFamily, DTLS_GAUGES), (CounterMetricFamily, DTLS_COUNTERS)):
            for name, meaning in meanings.items():
                counts = [((url,), getattr(told, name)) for url, told in secure]
                yield self._family(kind, f"dtls_{name}", meaning, ENDPOINT, counts)
        for name, meaning in DTLS_REASONS.items():
            by_reason = [
                ((url, reason), count) for url, told in secure for reason, count in getattr(told, name).items()
            ]
            yield self._family(CounterMetricFamily, f"dtls_{name}", meaning, (*ENDPOINT, "reason"), by_reason)

    def _family(
        self,
        kind: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        meaning: str,
        labels: Sequence[str],
        samples: Iterable[tuple[Sequence[str], float]],
    ) -> Metric:
        """Return a metric with a value for each set of labels, of which the gateway is always the first."""
        family = kind(f"fairway_gateway_{name}", meaning, labels=["gateway", *labels])
        for values, value in samples:
            family.add_metric([self._gateway, *values], value)
        return family


class Page:
    """A small HTTP server: `/metrics`, and `/healthz`, which is 503 with the reason while something is wrong."""

    def __init__(self, gatherer: Gatherer, figures: Figures) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(gatherer)
        self._figures = figures
        self._server: asyncio.Server | None = None
        self._open = 0

    async def open(self, host: str, port: int) -> str:
        self._server = await asyncio.start_server(self._answer, host, port, limit=REQUEST_BYTES_MAX)
        bound = self._server.sockets[0].getsockname()
        return f"http://{f'[{bound[0]}]' if ':' in bound[0] else bound[0]}:{bound[1]}/metrics"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open < CONNECTIONS_MAX:
            self._open += 1
            try:
                await self._answer_one(reader, writer)
            finally:
                self._open -= 1
        writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S):
                head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].split()
                path = head[1].decode(errors="replace").partition("?")[0] if len(head) > 1 else ""
                status, kind, body = self._page(head[0] if head else b"", path)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    f"Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()

    def _page(self, method: bytes, path: str) -> tuple[str, str, bytes]:
        text = "text/plain; charset=utf-8"
        if method != b"GET":
            return "405 Method Not Allowed", text, b"only GET is understood\n"
        pages: dict[str, Callable[[], tuple[str, str, bytes]]] = {"/metrics": self._metrics, "/healthz": self._health}
        page = pages.get(path)
        return page() if page else ("404 Not Found", text, b"there are /metrics and /healthz\n")

    def _metrics(self) -> tuple[str, str, bytes]:
        return "200 OK", "text/plain; version=0.0.4; charset=utf-8", generate_latest(self._registry)

    def _health(self) -> tuple[str, str, bytes]:
        reason = self._figures.stall or self._figures.sealing_stall
        status = "503 Service Unavailable" if reason else "200 OK"
        return status, "text/plain; charset=utf-8", f"{reason or 'ok'}\n".encode()
