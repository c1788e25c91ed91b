"""The registry: names, promises and parts of the protocols."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairway.core.errors import BadAddress
from fairway.core.machine import Options
from fairway.core.random_source import Seeded
from fairway.protocols import NAMES, PROTOCOLS, columns, make_machine, make_options, options_class, protocol, wire


def test_the_four_are_there_in_the_order_of_their_standard() -> None:
    assert NAMES == ("udpc", "mrp", "rup", "pydevts")
    assert [known.name for known in PROTOCOLS] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_to_its_machine_options_and_bytes(name: str) -> None:
    machine = make_machine(name, None, Seeded(1))
    assert machine.name == name
    assert issubclass(options_class(name), Options)
    assert make_machine(name, make_options(name, deferred=True), Seeded(1)).name == name
    assert wire(name).KINDS[0] == "malformed"
    assert wire(name).REASONS[0] == ""
    assert callable(columns(name).decode_columns)


@pytest.mark.parametrize("ask", [protocol, wire, columns, options_class])
def test_an_unknown_name_is_refused_with_the_names_there_are(ask: object) -> None:
    with pytest.raises(BadAddress, match="'tcp' is no protocol; it must be one of udpc, mrp, rup, pydevts"):
        ask("tcp")  # type: ignore[operator]
    with pytest.raises(BadAddress):
        make_machine("os", None, Seeded(1))


def test_what_they_promise_differs_as_the_standard_says() -> None:
    assert [known.name for known in PROTOCOLS if known.ordered] == ["mrp"]
    assert [known.name for known in PROTOCOLS if known.requests and known.plain] == ["udpc"]
    assert [known.name for known in PROTOCOLS if not known.single_datagram] == ["rup"]
    assert [known.name for known in PROTOCOLS if not known.empty_messages] == ["mrp"]
    assert {known.name: known.default_port for known in PROTOCOLS if known.default_port} == {"mrp": 8192}


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, fairway.protocols as registry\n"
        "registry.protocol('pydevts')\n"
        "assert not any(name.startswith('fairway.protocols.') for name in sys.modules)\n"
        "from fairway.core.random_source import Seeded\n"
        "machine = registry.make_machine('pydevts', None, Seeded(1))\n"
        "assert not any(name.startswith('fairway.protocols.mrp') for name in sys.modules)\n"
        "machine.receive(bytes(16), 'a', 0, 8)\n"
        "assert 'numpy' not in sys.modules\n"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
