"""The registry: what each protocol is called and can do, and where its parts are.

udpc      sessions; plain, important (IMP) and request (REQ) packets; heartbeats
mrp       many connections on one socket; ordered reliable packets; adaptive resend
rup       one message of any size, cut into parts, repaired by request
pydevts   connectionless single-datagram messages; CRC; packet, ack, close

A fifth protocol is a fifth folder and one more row here. Nothing of a protocol is imported before it is asked for, so
that `fairway send` loads one machine and no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from types import ModuleType
from typing import cast

from fairway.core.errors import BadAddress, BadOption
from fairway.core.machine import Machine, Options
from fairway.core.random_source import RandomSource


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is known of a protocol without loading it."""

    name: str
    """Also the scheme of its URLs."""
    default_port: int | None = None
    ordered: bool = False
    """Whether messages arrive in the order in which they were sent."""
    requests: bool = False
    """Whether a message may ask for a response."""
    plain: bool = False
    """Whether a message may be sent without acknowledgement."""
    empty_messages: bool = True
    """Whether it carries an empty message in every layout (mrp does in the stamped one only)."""
    message_bytes_max: int
    """The largest body; of rup the default of an option."""
    single_datagram: bool = True
    """Whether a message is one datagram."""


PROTOCOLS = (
    Protocol(name="udpc", requests=True, plain=True, message_bytes_max=65_494),
    Protocol(name="mrp", default_port=8192, ordered=True, empty_messages=False, message_bytes_max=65_493),
    Protocol(name="rup", message_bytes_max=64 << 20, single_datagram=False),
    Protocol(name="pydevts", message_bytes_max=65_499),
)

NAMES = tuple(known.name for known in PROTOCOLS)

_BY_NAME = {known.name: known for known in PROTOCOLS}


def protocol(name: str) -> Protocol:
    """Return the protocol of that name, or raise `BadAddress` with the names there are."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise BadAddress(f"{name!r} is no protocol; it must be one of {', '.join(NAMES)}") from None


def _part(name: str, part: str) -> ModuleType:
    return import_module(f"{__name__}.{protocol(name).name}.{part}")


def wire(name: str) -> ModuleType:
    """Return the module with `encode`, `decode`, `KINDS` and `REASONS`."""
    return _part(name, "wire")


def columns(name: str) -> ModuleType:
    return _part(name, "columns")


def options_class(name: str) -> type[Options]:
    """Return the class of the protocol's options, `UdpcOptions` for `udpc`."""
    return cast(type[Options], getattr(_part(name, "options"), f"{name.capitalize()}Options"))


def make_options(name: str, **chosen: object) -> Options:
    """Make a protocol's options, or raise `BadOption` for one that it does not have."""
    kind = options_class(name)
    known = [field.name for field in fields(kind)]
    for option in chosen:
        if option not in known:
            raise BadOption(f"there is no option {option!r}; known are {', '.join(known)}")
    return kind(**chosen)  # type: ignore[arg-type]  # the class checks the values


def make_machine(name: str, options: Options | None, random_source: RandomSource) -> Machine:
    """Make a machine; without options with the protocol's defaults."""
    kind = options_class(name)
    if options is None:
        options = kind()
    elif not isinstance(options, kind):
        raise BadOption(f"{type(options).__name__} are not the options of {name}; those are {kind.__name__}")
    machine = getattr(_part(name, "machine"), f"{name.capitalize()}Machine")
    return cast(Machine, machine(options, random_source))
