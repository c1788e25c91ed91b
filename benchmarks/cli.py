"""`fairway bench`: what this machine does in this run, as a table or as JSON lines."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from fairway.cli.exits import ExitCode
from fairway.cli.output import print_rows, print_table
from fairway.core.errors import BadOption, FairwayError

if TYPE_CHECKING:
    from benchmarks.transport.goals import Verdict
    from benchmarks.transport.rounds import Results

bench = typer.Typer(no_args_is_help=False)

JSON = typer.Option(False, "--json", help="One JSON object per line.")
SECONDS = typer.Option(1, min=1, help="How long to measure each row.")


@bench.command()
def columns(seconds: int = SECONDS, json: bool = JSON) -> None:
    """Measures how many headers a second each protocol's column decoder reads, on one core."""
    from benchmarks.columns import measure

    print_rows(measure(seconds=seconds), title="Headers decoded by columns", as_json=json)


@bench.command()
def simulator(seconds: int = SECONDS, json: bool = JSON) -> None:
    """Measures how many datagrams a second the simulator carries, on one core."""
    from benchmarks.simulator import measure

    print_rows(measure(seconds=seconds), title="Simulated datagrams", as_json=json)


@bench.command(epilog="Example: fairway bench paths --rates 20 --round-trips 100")
def paths(
    protocols: str = typer.Option("udpc,mrp,rup", help="Joined by commas."),
    rates: str = typer.Option("5,20,100", help="Mbit/s of the bottleneck, joined by commas."),
    round_trips: str = typer.Option("20,100,400", help="Milliseconds, joined by commas."),
    losses: str = typer.Option("0,1,2,5,10,5b", help="Per cent each way, joined by commas; b for bursts."),
    json: bool = JSON,
) -> None:
    """Measures which share of a simulated bottleneck one long flow reaches, and the queue: share / queue."""
    from benchmarks.paths import measure

    numbers = [[int(one) for one in some.split(",")] for some in (rates, round_trips)]
    rows = measure(protocols.split(","), numbers[0], numbers[1], losses.split(","))
    print_rows(rows, title="Share of the bottleneck / mean queue of a full one; ! misses a goal", as_json=json)


ROUNDS = typer.Option(5, min=1, help="How often each cell is measured; under loss half as often.")
LENGTH = typer.Option(0.5, min=0.01, help="How long to measure each cell, in seconds.")
ONLY = typer.Option("", metavar="NAMES", help="Peers and loads to measure, joined by commas.")
LOSS = typer.Option("1,5", metavar="PERCENT", help="Loss per datagram to measure under, joined by commas; 0 for none.")
OUT = typer.Option(Path("out/bench"), help="Where transport.json and transport.md go.")
QUICK = typer.Option(False, "--quick", help="One round of a twentieth of a second without loss: does everything run?")
DTLS = typer.Option(False, "--dtls", help="The four over DTLS beside plain and aioquic, without loss.")
RELAY = typer.Option(False, "--relay", help="Make loss by a relay process even where namespaces are permitted.")


@bench.command(epilog="Example: fairway bench transport --only rup,tcp,bulk --loss 1")
def transport(
    rounds: int = ROUNDS,
    seconds: float = LENGTH,
    only: str = ONLY,
    loss: str = LOSS,
    out: Path = OUT,
    quick: bool = QUICK,
    relay: bool = RELAY,
    dtls: bool = DTLS,
    json: bool = JSON,
) -> None:
    """Measures the four protocols beside raw UDP, TCP, QUIC, ENet and KCP, and judges the goals."""
    from benchmarks.transport.goals import judge
    from benchmarks.transport.rounds import Plan, Results, run

    peers, loads = _chosen(only, dtls=dtls)
    losses = () if quick or dtls else _losses(loss)
    if quick:
        rounds, seconds = 1, min(seconds, 0.05)
    plan = Plan(rounds=rounds, seconds=seconds, losses=losses, peers=peers, loads=loads, prefer_relay=relay)
    results, code = Results(plan), ExitCode.DONE
    try:
        with _bar() as report, _terminable(), _keys():
            run(results, report)
    except Stopped as stopped:
        code = ExitCode.TERMINATED if stopped.signal == signal.SIGTERM else ExitCode.INTERRUPTED
        results.notes.append("The run was stopped before its end.")
    verdicts = judge(results)
    _write(results, verdicts, out)
    _print(results, verdicts, out, as_json=json)
    raise typer.Exit(code or (ExitCode.FAILED if results.failures else ExitCode.DONE))


LINK_ROUNDS = typer.Option(5, min=1, help="How often each cell is measured, on a link from another seed.")
LINK_SECONDS = typer.Option(20.0, min=0.5, help="How long bulk and small messages are sent, in seconds.")
LINK_ONLY = typer.Option("", metavar="NAMES", help="Links, peers and loads to measure, joined by commas.")
LINK_OUT = typer.Option(Path("out/bench"), help="Where links.json and links.md go.")


@bench.command(epilog="Example: fairway bench links --only lte,rup,tcp-bbr,bulk --rounds 1 --seconds 5")
def links(
    rounds: int = LINK_ROUNDS,
    seconds: float = LINK_SECONDS,
    only: str = LINK_ONLY,
    out: Path = LINK_OUT,
    json: bool = JSON,
) -> None:
    """Measures Fairway beside TCP, QUIC, ENet and KCP on emulated links that delay, lose and queue."""
    from benchmarks.links.rounds import Plan, Results, choose, run
    from benchmarks.links.rows import ROWS
    from benchmarks.links.table import as_json, describe, exactness, figures, judge, markdown, remarks
    from benchmarks.namespaces import NotPermitted

    results, code = Results(choose(Plan(rounds, seconds), only)), ExitCode.DONE
    try:
        with _bar() as report, _terminable():
            run(results, report)
    except NotPermitted as reason:
        raise FairwayError(
            f"links need network namespaces and TUN devices, for which root is asked: {reason}"
        ) from reason
    except Stopped as stopped:
        code = ExitCode.TERMINATED if stopped.signal == signal.SIGTERM else ExitCode.INTERRUPTED
        results.notes.append("The run was stopped before its end.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "links.json").write_text(_json(as_json(results)))
    (out / "links.md").write_text(markdown(results))
    for name in results.plan.rows:
        print_rows(figures(results, ROWS[name]), title=describe(ROWS[name]), as_json=json)
    print_rows([one.row() for one in judge(results)], title="Goals", as_json=json)
    print_rows(exactness(results), title="The emulator", as_json=json)
    if not json:
        print("\n".join([*remarks(results), f"written: {out}/links.json, links.md"]))
    raise typer.Exit(code or (ExitCode.FAILED if results.failures else ExitCode.DONE))


DATAGRAMS = typer.Option(300_000, min=1_000, help="Size of the capture; 3,000,000 for the documented table.")
CAPTURE_ROUNDS = typer.Option(3, min=1, help="How often each step is measured after a first, cold time.")
CAPTURES_OUT = typer.Option(Path("out/bench"), help="Where captures.json and captures.md go.")


@bench.command(epilog="Example: fairway bench captures --datagrams 3000000")
def captures(
    datagrams: int = DATAGRAMS, rounds: int = CAPTURE_ROUNDS, out: Path = CAPTURES_OUT, json: bool = JSON
) -> None:
    """Measures captures on Spark beside tshark and dpkt, on one core and on all, and judges the goals."""
    from benchmarks.captures.run import Plan, all_cores, run
    from benchmarks.captures.table import markdown, rows, verdicts

    cores = all_cores()
    with _bar() as report:
        figures = run(Plan(datagrams, rounds, cores), report)
    judged = verdicts(figures, cores[-1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "captures.json").write_text(_json({"figures": rows(figures), "goals": judged}))
    (out / "captures.md").write_text(markdown(figures, judged))
    print_rows(rows(figures), title="Captures", as_json=json)
    print_rows(judged, title="Goals", as_json=json)
    if not json:
        print(f"written: {out}/captures.json, captures.md")


GATEWAY_ROUNDS = typer.Option(3, min=1, help="How often each system is measured, on a fresh server.")
GATEWAY_SECONDS = typer.Option(2.0, min=0.01, help="How long to measure each load, in seconds.")
GATEWAY_ONLY = typer.Option("", metavar="NAMES", help="Systems to measure, joined by commas.")
GATEWAY_VISIBLE = typer.Option(20, min=0, help="How many messages to follow into the table, with a stream; 0: none.")
GATEWAY_OUT = typer.Option(
    Path("out/bench"), help="Where gateway.json and gateway.md go, and for the time of the run all data."
)


@bench.command(epilog="Example: fairway bench gateway --only udpc,mrp,redis")
def gateway(
    rounds: int = GATEWAY_ROUNDS,
    seconds: float = GATEWAY_SECONDS,
    only: str = GATEWAY_ONLY,
    visible: int = GATEWAY_VISIBLE,
    out: Path = GATEWAY_OUT,
    json: bool = JSON,
) -> None:
    """Measures durable, acknowledged messages beside Redis streams and RabbitMQ, and judges the goals."""
    from benchmarks.gateway import table
    from benchmarks.gateway.rounds import Plan, Results, run
    from benchmarks.gateway.systems import SYSTEMS

    names = [name.strip() for name in only.split(",") if name.strip()] or list(SYSTEMS)
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise BadOption(f"there is no system {unknown[0]!r}; known are {', '.join(SYSTEMS)}")
    results, code = Results(Plan(rounds, seconds, names, visible=visible if "udpc" in names else 0)), ExitCode.DONE
    try:
        with _bar() as report, _terminable():
            run(results, out, report)
    except Stopped as stopped:
        code = ExitCode.TERMINATED if stopped.signal == signal.SIGTERM else ExitCode.INTERRUPTED
        results.notes.append("The run was stopped before its end.")
    verdicts = table.judge(results)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gateway.json").write_text(_json(table.as_json(results, verdicts)))
    (out / "gateway.md").write_text(table.markdown(results, verdicts))
    print_rows(table.figure_rows(results, table.RATES), title="Durable, acknowledged messages", as_json=json)
    print_rows(table.figure_rows(results, table.LATENCIES), title="From send to acknowledgement", as_json=json)
    print_rows(table.verdict_rows(verdicts), title="Goals", as_json=json)
    if not json:
        written = f"written: {out}/gateway.json, gateway.md"
        print("\n".join([*table.promises(results), *table.remarks(results), written]))
    raise typer.Exit(code or (ExitCode.FAILED if results.failures else ExitCode.DONE))


def _json(value: object) -> str:
    import json

    return json.dumps(value, indent=1) + "\n"


@contextmanager
def _keys() -> Iterator[None]:
    """Makes a folder for the identities of those that are measured over DTLS."""
    from benchmarks.transport.peers.endpoints import KEYS

    with TemporaryDirectory() as folder:
        os.environ[KEYS] = folder
        yield


def _chosen(only: str, *, dtls: bool) -> tuple[list[str], list[str]]:
    """Takes names of peers and of loads apart; all of a kind of which none is named."""
    from benchmarks.transport.loads import LOADS
    from benchmarks.transport.peers import BESIDE_DTLS, OVER_DTLS, PEERS

    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in PEERS and name not in LOADS:
            raise BadOption(f"there is no peer or load {name!r}; known are {', '.join([*PEERS, *LOADS])}")
    peers = [name for name in PEERS if name in names]
    peers = peers or [name for name in PEERS if (name in BESIDE_DTLS if dtls else name not in OVER_DTLS)]
    loads = [name for name in LOADS if name in names] or list(LOADS)
    return peers, loads


def _losses(text: str) -> list[float]:
    try:
        losses = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise BadOption(f"the loss is {text!r}; it must be percentages joined by commas, such as 1,5") from error
    if not all(0 <= percent < 100 for percent in losses):
        raise BadOption(f"the loss is {text!r}; each must be from 0 to less than 100 percent")
    return losses


class Stopped(Exception):
    """Ctrl-C, or SIGTERM: what was measured so far is shown."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.signal = number


@contextmanager
def _terminable() -> Iterator[None]:
    """Lets both signals end the run the same way, so that processes and namespaces are removed."""

    def stop(number: int, _: object) -> None:
        for one in earlier:
            signal.signal(one, signal.SIG_IGN)  # what is being removed is removed
        raise Stopped(number)

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """Shows which cell is being measured, and how long the rest will take."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def report(what: str, number: int, total: int) -> None:
            progress.update(task, description=what, completed=number - 1, total=total)

        yield report


def _write(results: Results, verdicts: list[Verdict], out: Path) -> None:
    import json

    from benchmarks.transport.table import as_json, markdown

    out.mkdir(parents=True, exist_ok=True)
    (out / "transport.json").write_text(json.dumps(as_json(results, verdicts), indent=1) + "\n")
    (out / "transport.md").write_text(markdown(results, verdicts))


def _print(results: Results, verdicts: list[Verdict], out: Path, *, as_json: bool) -> None:
    from benchmarks.transport.table import figures, remarks, verdict_rows

    if as_json:
        for environment in results.environments:
            rows = ({"environment": environment, **row} for row in figures(results, environment))
            print_rows(rows, title="", as_json=True)
        print_rows(verdict_rows(verdicts), title="", as_json=True)
        return
    for environment in results.environments:
        print_table(figures(results, environment), environment)
    print_table(verdict_rows(verdicts), "Goals")
    for line in remarks(results):
        print(line)
    print(f"written: {out}/transport.json, transport.md")
