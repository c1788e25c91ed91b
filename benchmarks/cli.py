"""`fairway bench`: what this machine does in this run, as a table or as JSON lines."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from benchmarks.frame import print_rows
from fairway.core.errors import BadOption, FairwayError

bench = typer.Typer(no_args_is_help=False)

JSON = typer.Option(False, "--json", help="One JSON object per line.")
SECONDS = typer.Option(1, min=1, help="How long to measure each row.")
OUT = typer.Option(Path("out/bench"), help="Where the figures go, as JSON and as Markdown.")


def _only(what: str) -> str:
    chosen: str = typer.Option("", metavar="NAMES", help=f"{what} to measure, joined by commas.")
    return chosen


@bench.command()
def columns(seconds: int = SECONDS, json: bool = JSON) -> None:
    """Measure how many headers a second each protocol's column decoder reads, on one core."""
    from benchmarks.columns import measure

    print_rows(measure(seconds=seconds), title="Headers decoded by columns", as_json=json)


@bench.command()
def simulator(seconds: int = SECONDS, json: bool = JSON) -> None:
    """Measure how many datagrams a second the simulator carries, on one core."""
    from benchmarks.simulator import measure

    print_rows(measure(seconds=seconds), title="Simulated datagrams", as_json=json)


@bench.command(epilog="Example: fairway bench paths --rates 20 --round-trips 100")
def paths(
    case: str = typer.Option("one", help="one, two (flows), newreno (beside it), joins (constant traffic) or trickle."),
    protocols: str = typer.Option("udpc,mrp,rup", help="Joined by commas."),
    rates: str = typer.Option("5,20,100", help="Mbit/s of the bottleneck, joined by commas."),
    round_trips: str = typer.Option("20,100,400", help="Milliseconds, joined by commas."),
    losses: str = typer.Option("0,1,2,5,10,5b", help="Per cent each way, joined by commas; b for bursts."),
    queue: float = typer.Option(1.0, help="Length of the queue, in bandwidth-delay products."),
    jitter: int = typer.Option(0, help="Milliseconds by which datagrams are late at the most, each way."),
    json: bool = JSON,
) -> None:
    """Measure what flows reach on a simulated bottleneck, and the queue in front of it."""
    from benchmarks.paths import CASES, measure

    if case not in CASES:
        raise typer.BadParameter(f"{case!r} is none of {', '.join(CASES)}", param_hint="--case")
    numbers = [[int(one) for one in some.split(",")] for some in (rates, round_trips)]
    rows = measure(case, protocols.split(","), numbers[0], numbers[1], losses.split(","), queue, jitter)
    print_rows(rows, title=f"{CASES[case][0]}; ! misses a goal", as_json=json)


@bench.command(epilog="Example: fairway bench transport --only rup,tcp,bulk --loss 1")
def transport(
    rounds: int = typer.Option(5, min=1, help="How often each cell is measured; under loss half as often."),
    seconds: float = typer.Option(0.5, min=0.01, help="How long to measure each cell, in seconds."),
    only: str = _only("Peers and loads"),
    loss: str = typer.Option(
        "1,5", metavar="PERCENT", help="Loss per datagram to measure under, joined by commas; 0 for none."
    ),
    out: Path = OUT,
    quick: bool = typer.Option(
        False, "--quick", help="One round of a twentieth of a second without loss: does everything run?"
    ),
    relay: bool = typer.Option(
        False, "--relay", help="Make loss by a relay process even where namespaces are permitted."
    ),
    dtls: bool = typer.Option(False, "--dtls", help="The four over DTLS beside plain and aioquic, without loss."),
    json: bool = JSON,
) -> None:
    """Measure the four protocols beside raw UDP, TCP, QUIC, ENet and KCP, and judge the goals."""
    from benchmarks.frame import Results, chosen, perform
    from benchmarks.transport.loads import LOADS
    from benchmarks.transport.peers import BESIDE_DTLS, PEERS
    from benchmarks.transport.rounds import Plan, run, show

    if quick:
        rounds, seconds, loss = 1, min(seconds, 0.05), "0"
    peers, loads = chosen(only, list(PEERS), list(LOADS))
    if len(peers) == len(PEERS):
        peers = [name for name in PEERS if (name in BESIDE_DTLS if dtls else not name.endswith("-dtls"))]
    plan = Plan(rounds, seconds, () if dtls else _losses(loss), peers, loads, prefer_relay=relay)
    results = Results(rounds, seconds)
    perform("transport", results, partial(run, plan, results), partial(show, plan, results), out, as_json=json)


@bench.command(epilog="Example: fairway bench links --only lte,rup,tcp-bbr,bulk --rounds 1 --seconds 5")
def links(
    rounds: int = typer.Option(5, min=1, help="How often each cell is measured, on a link from another seed."),
    seconds: float = typer.Option(20.0, min=0.5, help="How long bulk and small messages are sent, in seconds."),
    only: str = _only("Links, peers and loads"),
    out: Path = OUT,
    json: bool = JSON,
) -> None:
    """Measure Fairway beside TCP, QUIC, ENet and KCP on emulated links that delay, lose and queue."""
    from benchmarks.frame import Results, perform
    from benchmarks.links.rounds import choose, run, show
    from benchmarks.namespaces import NotPermitted

    plan, results = choose(only), Results(rounds, seconds)
    try:
        perform("links", results, partial(run, plan, results), partial(show, plan, results), out, as_json=json)
    except NotPermitted as reason:
        raise FairwayError(
            f"links need network namespaces and TUN devices, for which root is asked: {reason}"
        ) from reason


@bench.command(epilog="Example: fairway bench captures --datagrams 3000000")
def captures(
    datagrams: int = typer.Option(300_000, min=1_000, help="Size of the capture; 3,000,000 for the documented table."),
    rounds: int = typer.Option(3, min=1, help="How often each step is measured after a first, cold time."),
    out: Path = OUT,
    json: bool = JSON,
) -> None:
    """Measure captures on Spark beside tshark and dpkt, on one core and on all, and judge the goals."""
    from benchmarks.captures.run import run, show
    from benchmarks.frame import Results, perform

    results = Results(rounds, 0.0)
    perform("captures", results, partial(run, results, datagrams), partial(show, results), out, as_json=json)


@bench.command(epilog="Example: fairway bench gateway --only udpc,mrp,redis")
def gateway(
    rounds: int = typer.Option(3, min=1, help="How often each system is measured, on a fresh server."),
    seconds: float = typer.Option(2.0, min=0.01, help="How long to measure each load, in seconds."),
    only: str = _only("Systems"),
    visible: int = typer.Option(20, min=0, help="How many messages to follow into the table, with a stream; 0: none."),
    out: Path = OUT,
    json: bool = JSON,
) -> None:
    """Measure durable, acknowledged messages beside Redis streams and RabbitMQ, and judge the goals; its data lie in
    --out while it runs."""
    from benchmarks.frame import Results, chosen, perform
    from benchmarks.gateway.rounds import Plan, run, show
    from benchmarks.gateway.systems import SYSTEMS

    (names,) = chosen(only, list(SYSTEMS))
    plan, results = Plan(names, visible=visible if "udpc" in names else 0), Results(rounds, seconds)
    perform("gateway", results, partial(run, plan, results, out), partial(show, plan, results), out, as_json=json)


def _losses(text: str) -> list[float]:
    try:
        losses = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise BadOption(f"the loss is {text!r}; it must be percentages joined by commas, such as 1,5") from error
    if not all(0 <= percent < 100 for percent in losses):
        raise BadOption(f"the loss is {text!r}; each must be from 0 to less than 100 percent")
    return losses
