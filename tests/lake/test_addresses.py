"""An address has one form in every table, whether a gateway or a capture has seen it."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from fairway.core.addresses import format_address
from fairway.gateway.columns import _address
from fairway.lake.captures.readings import _text


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "2001:DB8:0:0:1:0:0:1", "fe80::1", "::1", "1:0:0:2::"])
def test_a_gateway_and_a_capture_write_an_address_alike(address: str) -> None:
    packed = ip_address(address).packed
    seen = socket.inet_ntop(socket.AF_INET6 if len(packed) == 16 else socket.AF_INET, packed)
    assert _address(format_address((seen, 9000)))[0] == _text(packed)


def test_ipv4_on_a_socket_of_both_families_is_ipv4() -> None:
    assert _address(format_address(("::ffff:192.0.2.1", 9000, 0, 0))) == ("192.0.2.1", 9000)
