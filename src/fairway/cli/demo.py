"""`fairway demo`: every protocol through the same bad link, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fairway.cli.exits import ExitCode
from fairway.cli.output import Row, print_rows

if TYPE_CHECKING:
    from fairway.sim.configuration import Configuration
    from fairway.sim.result import Result

SHAPES = {"udpc": (1, 200), "mrp": (1, 200), "rup": (10, 20_000), "pydevts": (1, 200)}
"""One message of so many, of so many bytes: rup is shown with what it is made for, few messages of many parts."""


def demo(
    seed: int = typer.Option(7, help="Another seed is another run."),
    messages: int = typer.Option(200, min=1, help="How many messages each protocol carries."),
    json: bool = typer.Option(False, "--json", help="One JSON object per line."),
) -> int:
    """Runs each protocol once over a simulated link that loses, doubles and reorders."""
    from fairway.sim.run import run

    results = [run(configuration(protocol, messages), seed) for protocol in SHAPES]
    title = "10 % lost, 5 % doubled, 10 % out of order, 50 ms there and back; one more once healed"
    print_rows([row_of(result) for result in results], title=title, as_json=json)
    broken = [violation for result in results for violation in result.violations]
    for violation in broken:
        print(violation)
    return ExitCode.FAILED if broken else ExitCode.DONE


def configuration(protocol: str, messages: int) -> Configuration:
    """Gives the same bad link and a load that suits the protocol."""
    from fairway.protocols import options_class
    from fairway.sim.configuration import Configuration
    from fairway.sim.faults import Faults, per_million
    from fairway.sim.load import Load

    one_of, size = SHAPES[protocol]
    chances = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.1}
    return Configuration(
        protocol=protocol,
        options=options_class(protocol)(),
        faults=Faults(delay_us=25_000, **{name: per_million(name, share) for name, share in chances.items()}),
        load=Load(messages=-(-messages // one_of), bytes_min=size, bytes_max=size),
    )


def row_of(result: Result) -> Row:
    """Gives what a reader wants to know of a run: did everything arrive, what did it take, was a rule broken.

    One message more than asked for is among them: the one that each run sends after the link has healed.
    """
    return {
        "protocol": result.protocol,
        "messages": result.accepted,
        "arrived": result.handed_over,
        "datagrams": result.datagrams,
        "repeated": result.total("retransmissions"),
        "seconds": round(result.healed_us / 1_000_000, 2),
        "broken": len(result.violations),
        "digest": result.digest[:8],
    }
