"""What an operator may set: options of the command line and keys of a TOML file, the same names and checks for both."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairway.core.errors import BadOption
from fairway.core.machine import check_choice, check_range
from fairway.gateway.errors import ExtraMissing
from fairway.gateway.home import check_name
from fairway.net.opening import Plan, plan_service
from fairway.net.urls import SIZE_BYTES, SPAN_US, Setting, parse, read_number
from fairway.store.locations import location_of

MESSAGE_BYTES_MAX = 1 << 30
"""A segment holds a message in one value, which Parquet's readers take up to 2 GiB."""
DEFAULTS: Mapping[str, Mapping[str, Setting]] = {
    "rup": {"spool_above_bytes": 1 << 20, "incoming_messages_max": 1_024, "incoming_messages_per_peer_max": 64}
}
"""What a gateway sets unless the URL does: large messages are spooled, and fewer are unfinished at a time."""
WORKERS_MAX = 64
PORT_MAX = 0xFFFF
DEFAULT_NAME = "gateway"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of them, checked. Durations are in microseconds, sizes in bytes."""

    urls: tuple[str, ...]
    lake: str
    """The path of a folder, or an address."""
    journal: str | None = None
    """The folder for journal and spool; in the lake, if that is a folder."""
    name: str = DEFAULT_NAME
    workers: int = 1
    metrics: str | None = None
    log: str = "text"
    verbose: bool = False
    commit_after_us: int = 5_000
    commit_messages: int = 2_000
    seal_after_us: int = 5_000_000
    seal_bytes: int = 64 << 20
    backlog_bytes_max: int = 1 << 30
    journal_bytes_max: int = 0
    """The size at which the journal counts as full; 0 is the disk's."""
    drain_us: int = 10_000_000
    """How long a stop waits for what is under way."""
    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    sessions_per_address_max: int = 4_096
    sessions_per_prefix_max: int = 16_384
    half_open_per_prefix_max: int = 1_024
    """Caps on udpc and mrp; 0 is none."""
    datagrams_per_second: int = 0
    """Per prefix (an IPv4 address, an IPv6 /64); 0 is no limit."""

    def __post_init__(self) -> None:
        if not self.urls:
            raise BadOption("there is no URL to listen on; name at least one, such as udpc://127.0.0.1:9000")
        check_name(self.name)
        if self.journal is None and not location_of(self.lake).is_folder:
            raise BadOption(
                f"{self.lake} is an object store, and what is acknowledged lies in a journal first; name a folder of "
                "this machine for it with --journal, on a disk that outlives the process"
            )
        check_choice("log", self.log, ("text", "json"))
        check_range("workers", self.workers, 1, WORKERS_MAX)
        check_range("commit_messages", self.commit_messages, 1, 1 << 20)
        check_range("commit_after", self.commit_after_us, 0, 1_000_000)
        check_range("seal_after", self.seal_after_us, 10_000, 3_600_000_000)
        check_range("seal_bytes", self.seal_bytes, 1_024, 512 << 20)
        self.plans()
        if self.metrics is not None:
            _, port = metrics_address(self.metrics)
            if port + self.workers - 1 > PORT_MAX:
                raise BadOption(
                    f"metrics is {self.metrics!r}, but each of {self.workers} workers has a port of its own from there "
                    f"on; name a port up to {PORT_MAX + 1 - self.workers}"
                )

    def plans(self) -> list[Plan]:
        return [_plan(url) for url in self.urls]

    @property
    def open_urls(self) -> list[str]:
        """Where anybody on a network may call: beyond loopback, without DTLS, and nobody is allowed by name."""
        targets = [] if self.allow else [(url, parse(url)) for url in self.urls]
        return [url for url, target in targets if not target.secure and not _is_loopback(target.host)]

    def plain(self, *, urls: Sequence[str]) -> dict[str, Any]:
        """Return what `build` takes to make the same settings with other URLs, as values that JSON knows."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values |= {"urls": list(urls)}
        values |= {name: [str(network) for network in values[name]] for name in ("allow", "deny")}
        return {name: value for name, value in values.items() if value is not None}


def _plan(url: str) -> Plan:
    """Return what a gateway opens for a URL; raises `BadOption` for what a gateway cannot keep."""
    target = parse(url)
    if "deferred" in target.settings:
        raise BadOption(f"{url!r} sets deferred, but a gateway always acknowledges after the commit; leave it out")
    plan = plan_service(url, DEFAULTS.get(target.protocol, {}))
    if getattr(plan.options, "message_bytes_max", 0) > MESSAGE_BYTES_MAX:
        raise BadOption(f"{url!r} sets message_bytes_max above {MESSAGE_BYTES_MAX}, the most that a segment holds")
    return plan


def require_packages(settings: Settings) -> None:
    """Raise `ExtraMissing` unless the packages are installed that serving with these settings needs."""
    for package in (
        "pyarrow",
        "deltalake",
        "obstore",
        *(["prometheus_client"] if settings.metrics is not None else []),
    ):
        if find_spec(package) is None:
            raise ExtraMissing(f"the package {package} is missing: pip install 'fairway[gateway]'")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def metrics_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise BadOption(f"metrics is {text!r}; it must be HOST:PORT, such as 127.0.0.1:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


# Reading.


def read_file(path: Path) -> dict[str, Any]:
    """Read a TOML file, whose keys are the options' names."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise BadOption(f"{path} is no TOML: {error}") from error


def build(given: Mapping[str, Any]) -> Settings:
    """Make settings of values as they stand in a TOML file or came from the command line; raise `BadOption`."""
    known = {one.name: one for one in fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        key = name.replace("-", "_")
        field_name = key if key in known else f"{key}_us"
        if field_name not in known:
            shown = ", ".join(sorted(one.removesuffix("_us") for one in known))
            raise BadOption(f"there is no setting {name!r}; known are {shown}")
        values[field_name] = _read(key, field_name, value)
    if "urls" not in values or "lake" not in values:
        raise BadOption("a gateway needs at least one URL and a lake; give them as arguments or in the file")
    return Settings(**values)


def _read(name: str, field_name: str, value: Any) -> Any:
    if field_name == "urls":
        return tuple(_texts(name, value))
    if field_name in {"allow", "deny"}:
        return tuple(_network(name, text) for text in _texts(name, value))
    if field_name == "lake":
        return location_of(value).uri
    if field_name == "journal":
        return str(Path(str(value)).absolute())
    if field_name in {"name", "metrics", "log"}:
        return str(value)
    if field_name == "verbose":
        if not isinstance(value, bool):
            raise BadOption(f"{name} is {value!r}; it must be true or false")
        return value
    return _number(name, field_name, value)


def _number(name: str, field_name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and name == field_name:
        if value < 0:
            raise BadOption(f"{name} is {value}; it must not be negative")
        return value
    return read_number(name, str(value), SPAN_US if name != field_name else SIZE_BYTES)


def _texts(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return list(value)
    raise BadOption(f"{name} is {value!r}; it must be a text or a list of them")


def _network(name: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BadOption(f"{name} has {text!r}, which is no network such as 10.0.0.0/8 or 2001:db8::/32") from error
