"""Where namespaces are permitted they carry, drop and vanish; where not, the reason is a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.frame import Results
from benchmarks.namespaces import Namespaces, NotPermitted, namespaces
from benchmarks.transport import rounds
from benchmarks.transport.environments import lossy_environments
from benchmarks.transport.loads import LOADS
from benchmarks.transport.pair import Cell, run_cell
from benchmarks.transport.peers import PEERS


def existing() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


SUPER_DATAGRAM = """
import socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    size = struct.pack("H", 1_000)
    sock.sendmsg([bytes(40_000)], [(socket.SOL_UDP, 103, size)], 0, ("192.0.2.2", 7_000))
"""


def drops_one_by_one(both: Namespaces) -> None:
    """Send datagrams in one call with GSO; half of them are dropped, so all or none arriving is no accident."""
    both.set_loss(50)
    listening = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('192.0.2.2', 7_000)); s.settimeout(1)"
    )
    counting = "print('ready', flush=True); n = 0\ntry:\n while s.recv(65_535): n += 1\nexcept TimeoutError: print(n)"
    command = [*both.receiver_prefix, sys.executable, "-c", f"{listening}; {counting}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        subprocess.run([*both.sender_prefix, sys.executable, "-c", SUPER_DATAGRAM], check=True)
        assert 0 < int(receiver.stdout.readline()) < 40


def exercise() -> str:
    """Carry over a wire, with loss and without; return the name of a namespace that must be gone now."""
    with namespaces() as both:
        without, lossy = lossy_environments([20.0], both)
        lossy.prepare()
        rules = subprocess.run(
            [*both.sender_prefix, "nft", "list", "ruleset"], capture_output=True, text=True, check=True
        ).stdout
        assert "< 200000 drop" in rules
        run_cell(Cell(PEERS["udpc"], LOADS["batches-64"], lossy), 1.0, 1, units=500)
        run_cell(Cell(PEERS["tcp"], LOADS["bulk"], without), 1.0, 1, units=262_139)
        drops_one_by_one(both)
        assert both.names[0] in existing()
    return both.names[0]


def test_a_wire_between_namespaces_carries_under_loss_and_is_removed() -> None:
    """Where this machine does not permit namespaces, that it says so is what is tested."""
    try:
        name = exercise()
    except NotPermitted as reason:
        assert "failed" in str(reason) or "not there" in str(reason)  # noqa: PT017
    else:
        assert name not in existing()


def test_without_the_programs_the_relay_is_used_and_the_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.namespaces.shutil.which", lambda name: None)
    plan = rounds.Plan(rounds=1, seconds=0.02, losses=[1.0], peers=["udpc"], loads=["batches-64"])
    results = Results(1, 0.02)
    rounds.run(plan, results, lambda *_: None)
    assert results.more["environments"] == ["loopback", "relay, 0 % loss", "relay, 1 % loss"]
    assert "the program ip is not there" in results.notes[0]
    assert "without TCP" in results.notes[0]
    assert results.failures == []
