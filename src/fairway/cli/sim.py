"""`fairway sim`: one simulated run, printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairway.cli.exits import ExitCode

if TYPE_CHECKING:
    from fairway.sim.network import Sighting
    from fairway.sim.result import Result

_FAULTS, _LOAD, _RUN = "What the network does", "What the applications do", "The run"
_TRACE = typer.Option(None, help="Write every datagram to this pcapng file.", rich_help_panel=_RUN)


def sim(
    protocol: str = typer.Option(..., help="udpc, mrp, rup or pydevts."),
    seed: int = typer.Option(1, help="The run is a function of its options and of this.", rich_help_panel=_RUN),
    swarm: bool = typer.Option(False, help="Draw everything else from the seed.", rich_help_panel=_RUN),
    json: bool = typer.Option(False, "--json", help="One JSON object.", rich_help_panel=_RUN),
    trace: Path | None = _TRACE,
    loss: float = typer.Option(0.0, help="Share of datagrams lost, 0 to 1.", rich_help_panel=_FAULTS),
    burst: float = typer.Option(0.0, help="Share of datagrams that begin a burst of losses.", rich_help_panel=_FAULTS),
    duplicate: float = typer.Option(0.0, help="Share of datagrams that arrive twice.", rich_help_panel=_FAULTS),
    reorder: float = typer.Option(0.0, help="Share of datagrams that later ones overtake.", rich_help_panel=_FAULTS),
    corrupt: float = typer.Option(0.0, help="Share of datagrams that are damaged.", rich_help_panel=_FAULTS),
    delay_ms: float = typer.Option(10.0, help="One way.", rich_help_panel=_FAULTS),
    jitter_ms: float = typer.Option(0.0, help="Added to the delay, up to this.", rich_help_panel=_FAULTS),
    bandwidth: int = typer.Option(0, help="Bytes per second; 0 is unlimited.", rich_help_panel=_FAULTS),
    hostile: int = typer.Option(0, help="Actions of a hostile peer.", rich_help_panel=_FAULTS),
    crashes: int = typer.Option(0, help="How often the server crashes and comes back.", rich_help_panel=_FAULTS),
    snapshot: bool = typer.Option(True, help="A crashed server restores its snapshot.", rich_help_panel=_FAULTS),
    messages: int = typer.Option(100, help="From each client to the server.", rich_help_panel=_LOAD),
    size: int = typer.Option(64, help="Bytes of a message.", rich_help_panel=_LOAD),
    interval_ms: float = typer.Option(0.0, help="Between messages; 0 is as fast as it goes.", rich_help_panel=_LOAD),
    clients: int = typer.Option(1, help="How many nodes send.", rich_help_panel=_LOAD),
    two_way: bool = typer.Option(False, help="The server sends as much back.", rich_help_panel=_LOAD),
    deferred: bool = typer.Option(False, help="Acknowledge when stored, not when delivered.", rich_help_panel=_LOAD),
    window: int | None = typer.Option(None, help="Packets in flight at the most.", rich_help_panel=_LOAD),
    controller: str = typer.Option("model", help="model, newreno or eager.", rich_help_panel=_LOAD),
    layout: str | None = typer.Option(None, help="mrp only: stamped or piggyback.", rich_help_panel=_LOAD),
) -> int:
    """Run one simulated conversation and print what happened.

    The same options and seed give the same run on every machine. Leaves with 1 when a promise was broken.
    """
    given = locals()
    from fairway.sim.cases import RunOptions, case
    from fairway.sim.configuration import check_protocol
    from fairway.sim.run import run
    from fairway.sim.swarm import draw

    check_protocol(protocol)
    asked = RunOptions(**{field.name: given[field.name] for field in fields(RunOptions)})
    configuration = draw(protocol, seed) if swarm else case(asked)
    with traced(trace, configuration.clients) as keep:
        result = run(configuration, seed, trace=keep)
    command = f"fairway sim --protocol {protocol} --swarm --seed {seed}" if swarm else asked.command(seed)
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
    from fairway.sim.summary import summary

    print(summary(result))
    if not result.passed:
        print(f"replay: {command}")
