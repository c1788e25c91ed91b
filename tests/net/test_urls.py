"""URLs are understood or refused in one sentence."""

from __future__ import annotations

import pytest

from fairway.core.addresses import format_address
from fairway.core.errors import BadAddress, BadOption
from fairway.net.urls import Target, build_options, format_url, parse
from fairway.protocols import NAMES, options_class
from fairway.protocols.udpc.options import UdpcOptions


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("udpc://127.0.0.1:9000", Target("udpc", "127.0.0.1", 9000, {})),
        ("mrp://host", Target("mrp", "host", 8192, {})),
        ("mrp://host:0", Target("mrp", "host", 0, {})),
        ("rup://[::1]:7?window=3&deferred=on", Target("rup", "::1", 7, {"window": "3", "deferred": "on"})),
        ("pydevts://[fe80::1%25eth0]:7", Target("pydevts", "fe80::1%25eth0", 7, {})),
        ("udpc://:9000/", Target("udpc", "", 9000, {})),
    ],
)
def test_a_url_is_taken_apart(url: str, target: Target) -> None:
    assert parse(url) == target


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("quic://127.0.0.1:1", "'quic' is no protocol"),
        ("127.0.0.1:9000", "is no protocol"),
        ("udpc:127.0.0.1:9000", "lacks the //"),
        ("udpc://127.0.0.1", "names no port, and udpc has no default"),
        ("udpc://127.0.0.1:http", "port of .* must be a number"),
        ("udpc://127.0.0.1:70000", "from 0 to 65535"),
        ("udpc://127.0.0.1:1/path", "more than scheme"),
        ("udpc://user@127.0.0.1:1", "more than scheme"),
        ("udpc://[::1:1", "is no URL"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, wrong: str) -> None:
    with pytest.raises(BadAddress, match=wrong):
        parse(url)


@pytest.mark.parametrize(
    ("url", "wrong"), [("udpc://h:1?window", "name=value"), ("udpc://h:1?window=1&window=2", "twice")]
)
def test_a_wrong_query_says_what_is_wrong(url: str, wrong: str) -> None:
    with pytest.raises(BadOption, match=wrong):
        parse(url)


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"window": "12"}, "window", 12),
        ({"window": 12}, "window", 12),
        ({"keepalive": "250ms"}, "keepalive_us", 250_000),
        ({"keepalive": "1.5s"}, "keepalive_us", 1_500_000),
        ({"keepalive": "2m"}, "keepalive_us", 120_000_000),
        ({"keepalive": "80us"}, "keepalive_us", 80),
        ({"keepalive_us": "80"}, "keepalive_us", 80),
        ({"keepalive_us": 80}, "keepalive_us", 80),
        ({"open_receipt_bytes_max": "64KiB"}, "open_receipt_bytes_max", 65_536),
        ({"deferred": "Yes"}, "deferred", True),
        ({"deferred": "0"}, "deferred", False),
        ({"deferred": True}, "deferred", True),
        ({"controller": "eager"}, "controller", "eager"),
    ],
)
def test_options_are_read_as_what_they_are(settings: dict[str, str], field: str, value: object) -> None:
    assert getattr(build_options(UdpcOptions, settings), field) == value


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"windw": "12"}, "no option 'windw'; known are .*keepalive, .*window"),
        ({"window": "many"}, "window is 'many'; it must be a whole number"),
        ({"window": "-1"}, "window is '-1'"),
        ({"window": "5s"}, "whole number"),
        ({"keepalive": "5"}, "number with a unit"),
        ({"keepalive": 5}, "number with a unit, such as 250ms, or use keepalive_us"),
        ({"keepalive": "5 parsecs"}, "number with a unit"),
        ({"keepalive": "5s", "keepalive_us": "1"}, "twice"),
        ({"deferred": "maybe"}, "true or false"),
        ({"controller": "reckless"}, "one of model, newreno, eager"),
        ({"window": "0"}, "window is 0; it must be from 1"),
    ],
)
def test_a_wrong_option_says_what_is_wrong(settings: dict[str, str], wrong: str) -> None:
    with pytest.raises(BadOption, match=wrong):
        build_options(UdpcOptions, settings)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_every_protocol_can_be_written_as_its_default(name: str) -> None:
    kind = options_class(name)
    defaults = {field: getattr(kind(), field) for field in kind.__dataclass_fields__}
    defaults = {field: value for field, value in defaults.items() if value is not None}
    plain = {field: ",".join(value) if isinstance(value, tuple) else str(value) for field, value in defaults.items()}
    assert build_options(kind, plain) == kind()


def test_addresses_are_shown_as_in_urls() -> None:
    assert format_address(("127.0.0.1", 5)) == "127.0.0.1:5"
    assert format_url("rup", ("::1", 5, 0, 0)) == "rup://[::1]:5"
