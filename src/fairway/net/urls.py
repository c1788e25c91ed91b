"""URLs: `scheme://host:port?option=value`, checked against what the protocol lets its user set.

A duration, whose field has the unit `_us`, is written without it and with a unit (`connect_timeout=5s`, `rto_min=20ms`,
`100us`, `2m`), or with it as a plain number (`connect_timeout_us=5000000`). A size may end in `KiB`, `MiB` or `GiB`. A
switch is `true` or `false` (also `yes`, `no`, `on`, `off`, `1`, `0`), a list has commas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from fairway.core.addresses import format_address
from fairway.core.errors import BadAddress, BadOption
from fairway.core.events import Address
from fairway.core.machine import Options
from fairway.protocols import protocol

SPAN_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
SIZE_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SWITCH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)

DTLS = "+dtls"
DTLS_FILES = ("identity", "cert", "key", "ca", "revoked", "crl")
DTLS_SETTINGS = (*DTLS_FILES, "name")
"""Settings of a URL that are not the protocol's but those of DTLS below it."""

_UNIT = re.compile(r"_us(?=$|_min$|_max$)")
_NUMBER = re.compile(r"(\d[\d_]*(?:\.\d+)?) ?([A-Za-z]*)", re.ASCII)

OptionsType = TypeVar("OptionsType", bound=Options)
Setting = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart: protocol, host (without brackets), port, and the settings of its query, not yet checked."""

    protocol: str
    host: str
    port: int
    settings: Mapping[str, str]
    secure: bool = False
    """Whether the scheme asks for DTLS."""

    @property
    def scheme(self) -> str:
        """The scheme of a URL: the protocol, with DTLS below it or without."""
        return f"{self.protocol}{DTLS}" if self.secure else self.protocol


def parse(url: str) -> Target:
    """Take a URL apart; raises `BadAddress` in a sentence that says what is wrong with it."""
    parts = _split(url)
    secure = parts.scheme.endswith(DTLS)
    name = parts.scheme.removesuffix(DTLS)
    known = protocol(name)
    if not url[len(parts.scheme) :].startswith("://"):
        raise BadAddress(f"{url!r} lacks the // of scheme://host:port")
    if parts.path not in {"", "/"} or parts.fragment or parts.username is not None:
        raise BadAddress(f"{url!r} has more than scheme://host:port?options")
    port = _port(url, parts)
    if port is None:
        port = known.default_port
    if port is None:
        raise BadAddress(f"{url!r} names no port, and {parts.scheme} has no default")
    return Target(name, parts.hostname or "", port, _settings(url, parts.query), secure)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise BadAddress(f"{url!r} is no URL: {error}") from error


def _port(url: str, parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as error:
        raise BadAddress(f"the port of {url!r} must be a number from 0 to 65535") from error


def _settings(url: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise BadOption(f"the options of {url!r} must be name=value, joined by &") from error
    settings = dict(pairs)
    if len(settings) < len(pairs):
        raise BadOption(f"{url!r} sets an option twice")
    return settings


def format_url(scheme: str, address: Address) -> str:
    return f"{scheme}://{format_address(address)}"


def build_options(options: type[OptionsType], settings: Mapping[str, Setting]) -> OptionsType:
    """Make a protocol's options from settings, texts or values; an unknown name is an error that lists the known."""
    defaults = {field.name: field.default for field in fields(options)}
    field_names = {shown_name(name): name for name in defaults} | {name: name for name in defaults}
    chosen: dict[str, Setting] = {}
    for name, value in settings.items():
        field_name = field_names.get(name)
        if field_name is None:
            known = ", ".join(sorted(shown_name(one) for one in defaults))
            raise BadOption(f"there is no option {name!r}; known are {known}")
        if field_name in chosen:
            raise BadOption(f"the option {name!r} is set twice, with and without its unit")
        chosen[field_name] = _read(name, field_name, value, defaults[field_name])
    return options(**chosen)  # type: ignore[arg-type]


def shown_name(field_name: str) -> str:
    """Return the name of an option as it stands in a URL: a duration without its unit."""
    return _UNIT.sub("", field_name)


def _read(name: str, field_name: str, value: Setting, default: object) -> Setting:
    """Read a value as the kind that the field's default has."""
    if isinstance(default, bool):
        return _read_switch(name, value)
    if isinstance(default, str):
        return str(value)
    if isinstance(default, tuple):
        return tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool) or name != field_name:
            raise BadOption(f"{name} is {value!r}; write a number with a unit, such as 250ms, or use {field_name}")
        return value
    return read_number(name, value, SPAN_US if name != field_name else SIZE_BYTES)


def _read_switch(name: str, value: Setting) -> bool:
    found = value if isinstance(value, bool) else SWITCH.get(str(value).lower())
    if found is None:
        raise BadOption(f"{name} is {value!r}; it must be true or false")
    return found


def read_number(name: str, text: str, units: Mapping[str, int]) -> int:
    match = _NUMBER.fullmatch(text)
    unit = match[2] if match else ""
    if match is None or unit not in units or (not unit and "." in match[1]):
        example = "a number with a unit, such as 250ms or 5s" if "ms" in units else "a whole number"
        raise BadOption(f"{name} is {text!r}; it must be {example}")
    whole, _, fraction = match[1].replace("_", "").partition(".")
    scaled = int(whole + fraction) * units[unit]
    return scaled // int(10 ** len(fraction))
