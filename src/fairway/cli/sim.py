"""`fairway sim`: one simulated run, printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.exits import ExitCode
from fairway.cli.options import option

if TYPE_CHECKING:
    from fairway.sim.network import Sighting
    from fairway.sim.result import Result


def sim(
    protocol: str = option(..., help="udpc, mrp, rup or pydevts."),
    seed: int = option(1, help="The run is a function of its options and of this."),
    swarm: bool = option(False, help="Draw everything else from the seed."),
    json: bool = options.json("One JSON object."),
    trace: Path | None = options.TRACE,
    loss: float = option(0.0, help="Share of datagrams lost, 0 to 1."),
    burst: float = option(0.0, help="Share of datagrams that begin a burst of losses."),
    duplicate: float = option(0.0, help="Share of datagrams that arrive twice."),
    reorder: float = option(0.0, help="Share of datagrams that are reordered."),
    corrupt: float = option(0.0, help="Share of datagrams that are damaged."),
    delay_ms: float = option(10.0, help="One way."),
    jitter_ms: float = option(0.0, help="Added to the delay, up to this."),
    bandwidth: int = option(0, help="Bytes per second; 0 is unlimited."),
    hostile: int = option(0, help="Actions of a hostile peer."),
    crashes: int = option(0, help="How often the server crashes and comes back."),
    snapshot: bool = option(True, help="A crashed server restores its snapshot."),
    messages: int = option(100, help="From each client to the server."),
    size: int = option(64, help="Bytes of a message."),
    interval_ms: float = option(0.0, help="Between messages; 0 is as fast as it goes."),
    clients: int = option(1, help="How many nodes send."),
    two_way: bool = option(False, help="The server sends as much back."),
    deferred: bool = option(False, help="Acknowledge when stored, not when delivered."),
    window: int | None = option(None, help="Packets in flight at the most."),
    controller: str = option("model", help="model, newreno or eager."),
    layout: str | None = option(None, help="mrp only: stamped or piggyback."),
) -> int:
    """Run one simulated conversation and print what happened.

    The same options and seed give the same run on every machine. Leaves with 1 when a promise was broken.
    """
    given = locals()
    from fairway.sim.configuration import RunOptions, case, check_protocol
    from fairway.sim.run import run
    from fairway.sim.swarm import draw, replay_command

    check_protocol(protocol)
    run_options = RunOptions(**{field.name: given[field.name] for field in fields(RunOptions)})
    configuration = draw(protocol, seed) if swarm else case(run_options)
    with traced(trace, configuration.clients) as keep:
        result = run(configuration, seed, trace=keep)
    command = replay_command(protocol, seed) if swarm else run_options.command(seed)
    _print(result, command, as_json=json)
    return ExitCode.DONE if result.passed else ExitCode.FAILED


@contextmanager
def traced(path: Path | None, clients: int) -> Iterator[Callable[[int, Sighting], None] | None]:
    """Return what writes every datagram to a file, if one is named."""
    if path is None:
        yield None
        return
    from fairway.sim.trace import tracer

    points = ["server", *(f"client {number}" for number in range(1, clients + 1)), "hostile"]
    with path.open("wb") as file:
        yield tracer(file.write, points)


def _print(result: Result, command: str, *, as_json: bool) -> None:
    if as_json:
        from json import dumps

        print(dumps(result.as_dict() | {"command": command}))
        return
    from fairway.sim.result import summary

    print(summary(result))
    if not result.passed:
        print(f"replay: {command}")
