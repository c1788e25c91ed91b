"""The steps of the demo in their order, and the page that they end with.

First devices of four protocols send through links that lose, duplicate and reorder, to a gateway that is killed once
while they send; they see nothing but delay. Each step is announced in one line, and says what it found and how long it
took. One Spark session serves stream, analysis and sweep; it starts while the first act runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from fairway.core.tables import CAPTURE_TABLES, MESSAGES
from fairway.demo.fleet import ACKNOWLEDGED, Fleet, Ledger, Orders, judge, reading
from fairway.demo.keys import Keys
from fairway.demo.relay import bad_links
from fairway.demo.services import GatewayService
from fairway.protocols import NAMES
from fairway.report.page import Tile, element, links, page, section, table, tiles
from fairway.report.units import count, duration

if TYPE_CHECKING:
    from fairway.lake.session import Session as SparkSession

FIRST_WITHIN_S = 60.0
POLL_S = 0.02
SEAL = ("--seal-after", "1s")
OUTCOMES_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What the first act came to."""

    ledger: Ledger
    seconds: float
    again_s: float
    """From the kill to serving again."""
    happened: Counter[str]
    """To datagrams on the bad links, as the simulator counts it."""


def carry(folder: Path, *, messages: int, seed: int) -> Carried:
    """Run the first act: `messages` of each device, traced to `captures`, and one kill in the middle."""
    began_s = monotonic()
    keys = Keys(folder / "keys")
    with GatewayService(folder / "lake", NAMES, SEAL, keys=keys) as gateway:
        gateway.serve()
        with bad_links(gateway.urls, seed) as (urls, counts):
            orders = Orders(urls=urls, devices=2, messages=messages, name=f"demo-{seed}", keys=str(keys.folder))
            fleet = Fleet(orders, folder / "captures")
            sending = Thread(target=fleet.run, daemon=True)
            sending.start()
            _until_all_have_begun(fleet, orders, sending)
            gateway.kill()
            killed_s = monotonic()
            gateway.serve()
            again_s = monotonic() - killed_s
            sending.join(OUTCOMES_WITHIN_S)
            if sending.is_alive():
                fleet.stopping = True
                sending.join(OUTCOMES_WITHIN_S)
        gateway.stop()
    return Carried(ledger=fleet.ledger, seconds=monotonic() - began_s, again_s=again_s, happened=counts)


def _until_all_have_begun(fleet: Fleet, orders: Orders, sending: Thread) -> None:
    """Wait until every device has an acknowledgement: only a session that is still being opened may have to be
    opened again after a kill, and the story is about the others."""
    firsts = [
        orders.key(reading(orders.name, protocol, device, 0, orders.sizes.get(protocol, 0)), protocol, device)
        for protocol in orders.urls
        for device in range(orders.devices)
    ]
    until_s = monotonic() + FIRST_WITHIN_S
    while sending.is_alive() and monotonic() < until_s:
        if all(fleet.ledger.outcomes.get(key) == ACKNOWLEDGED for key in firsts):
            return
        sending.join(POLL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the story: what it showed, in how long, and whether what must be true was."""

    title: str
    found: str
    seconds: float
    kept: bool


def cover(
    steps: Sequence[Step],
    numbers: Sequence[Tile],
    pages: Sequence[tuple[str, str, str]],
    devices: Mapping[str, int],
) -> str:
    """Return the page; `pages` are address, title and what is there, `devices` have messages in the table."""
    sent_by = [(name, count(rows)) for name, rows in sorted(devices.items())]
    broken = [step.title for step in steps if not step.kept]
    verdict = (
        "Every promise was kept: what was acknowledged is in the table, once, though the gateway was killed."
        if not broken
        else f"A promise was broken: {', '.join(broken)}."
    )
    return page(
        title="Fairway, in two minutes",
        about="Messages over UDP, reliably, from the edge to the lake",
        blocks=[
            section("What happened", [element("p", verdict, {"class": "verdict"}), tiles(numbers)]),
            section("Look further", [links(pages)]),
            section(
                "Who sent it",
                [table(["device", "messages in the table"], sent_by)],
                note="All of it came over DTLS; the column device holds the name in the sender's certificate.",
            ),
            section("Step by step", [element("ol", [_told(step) for step in steps])]),
        ],
    )


def _told(step: Step) -> str:
    verdict = "" if step.kept else " The promise was broken."
    took = element("small", f" {step.seconds:.1f} s")
    return element("li", [element("strong", step.title), f": {step.found}.{verdict}", took])


SETTINGS = {
    # Small data: a task for each of 200 partitions would be most of the time.
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}
READINGS = "readings=sensor STRING, number INT, celsius DOUBLE, at TIMESTAMP"

Tell = Callable[[str], None]


@dataclass(slots=True)
class Story:
    """The demo, while it runs. Everything that it leaves is in one folder."""

    folder: Path
    tell: Tell
    messages: int = 100
    seed: int = 7
    steps: list[Step] = field(default_factory=list)
    numbers: list[Tile] = field(default_factory=list)
    pages: list[tuple[str, str, str]] = field(default_factory=list)
    devices: dict[str, int] = field(default_factory=dict)

    def run(self) -> bool:
        """Run the whole demo; return whether every promise was kept."""
        began_s = monotonic()
        lake = self.folder / "lake"
        (self.folder / "captures").mkdir(parents=True)
        with spark_meanwhile() as session:
            carried = self._carry()
            spark = session()
            self._land(spark, lake, carried)
            self._analyse(spark, lake)
            self._sweep(spark)
        kept = all(step.kept for step in self.steps)
        page = self.folder / "index.html"
        page.write_text(cover(self.steps, self.numbers, self.pages, self.devices), encoding="utf-8")
        self.tell(f"{'Every promise was kept' if kept else 'A PROMISE WAS BROKEN'}, in {monotonic() - began_s:.0f} s.")
        return kept

    def _did(self, title: str, found: str, began_s: float, kept: bool = True) -> None:
        step = Step(title=title, found=found, seconds=monotonic() - began_s, kept=kept)
        self.steps.append(step)
        self.tell(f"{len(self.steps)}. {title}: {found} ({step.seconds:.1f} s){'' if kept else '  BROKEN'}")

    def _carry(self) -> Carried:
        began_s = monotonic()
        carried = carry(self.folder, messages=self.messages, seed=self.seed)
        counts = carried.ledger.counts()
        happened = carried.happened
        found = (
            f"{count(len(carried.ledger.outcomes))} messages in four protocols over DTLS and links that lost "
            f"{count(happened['loss'])} datagrams, duplicated {count(happened['duplicate'])} and reordered "
            f"{count(happened['reorder'])}; the gateway was killed with kill -9 and served again after "
            f"{carried.again_s:.1f} s; {count(counts[ACKNOWLEDGED])} were acknowledged"
        )
        expected = 2 * 4 * self.messages
        self._did("Carry", found, began_s, kept=counts[ACKNOWLEDGED] == len(carried.ledger.outcomes) == expected)
        self.numbers += [
            Tile(name="Acknowledged", value=count(counts[ACKNOWLEDGED]), detail=f"of {count(expected)} sent"),
            Tile(
                name="Longest wait",
                value=duration(carried.ledger.longest_s() * 1e6),
                detail="for an acknowledgement, kill included",
            ),
        ]
        return carried

    def _land(self, spark: SparkSession, lake: Path, carried: Carried) -> None:
        from fairway.lake.landing.reconcile import reconcile
        from fairway.lake.landing.stream import Stream, StreamOptions
        from fairway.lake.landing.typed import parse_spec
        from fairway.store.lakes import Lake

        began_s = monotonic()
        options = StreamOptions(available_now=True, specs=(parse_spec(READINGS),))
        Stream(Lake(lake), options, lambda _: None).run(lambda: spark, Event())
        table = lake / "tables" / MESSAGES.name
        verdict = judge(carried.ledger, table)
        accounts = reconcile(Lake(lake, create=False))
        kept = verdict.kept and all(account.balanced for account in accounts)
        query = f"SELECT device, count(*) FROM delta_scan('{table}') GROUP BY ALL"
        self.devices = verdict.devices
        self._did("Land", f"Spark wrote a Delta table; {verdict}. DuckDB reads it: {query}", began_s, kept=kept)
        self.numbers += [
            Tile(name="In the table", value=count(verdict.in_table), detail="read back and compared, body by body"),
            Tile(name="Missing", value=count(verdict.missing), detail="acknowledged and not there", bad=not kept),
            Tile(name="Double", value=count(verdict.double), detail="there more than once", bad=verdict.double > 0),
        ]

    def _analyse(self, spark: SparkSession, lake: Path) -> None:
        from fairway.lake.analysis.job import analyze
        from fairway.report.capture import capture_report
        from fairway.store.lakes import Lake

        began_s = monotonic()
        files_ = sorted(str(path) for path in (self.folder / "captures").glob("*.pcapng"))
        done = analyze(spark, Lake(lake), files_)
        rows = {table.name: _rows(lake, table.name) for table in CAPTURE_TABLES}
        page = self.folder / "captures.html"
        page.write_text(capture_report(lake), encoding="utf-8")
        found = (
            f"{count(rows['packets'])} datagrams of {len(files_)} captures are {count(rows['sessions'])} sessions and "
            f"{count(rows['transfers'])} messages; {count(rows['violations'])} rules of the wire were broken"
        )
        self._did("Analyse", found, began_s, kept=not done.problems and rows["packets"] > 0 and not rows["violations"])
        self.pages.append((page.name, "What happened on the wire", "sessions, repeats, round trips, broken rules"))

    def _sweep(self, spark: SparkSession) -> None:
        from fairway.lake.lab.grid import parse
        from fairway.lake.lab.sweep import LabFolder, sweep
        from fairway.report.lab import lab_report

        began_s = monotonic()
        lab = LabFolder(self.folder / "lab")
        lab.prepare()
        lab.add(parse((files("fairway.lake.lab") / "grids" / "demo.toml").read_text(), "demo"))
        runs = sweep(spark, lab)
        page = self.folder / "lab.html"
        page.write_text(lab_report(lab.path), encoding="utf-8")
        self._did("Compare", f"{count(runs)} simulated runs on Spark say which protocol suits which link", began_s)
        self.pages.append((page.name, "Which protocol suits which link", "a small sweep, with intervals of confidence"))


@contextmanager
def spark_meanwhile() -> Iterator[Callable[[], SparkSession]]:
    """Start Spark in the background; return a call that waits for it. The session ends with the block."""
    from fairway.lake.session import start

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, "fairway demo", settings=SETTINGS)
        try:
            yield starting.result
        finally:
            if starting.exception() is None:
                starting.result().stop()


def _rows(lake: Path, table: str) -> int:
    from fairway.store.analyses import datasets
    from fairway.store.locations import location_of

    return int(datasets(location_of(lake))[table].count_rows())


def fresh_folder(wanted: Path) -> Path:
    """Return the folder, or the next one with a number behind it if it is there already."""
    number = 1
    folder = wanted
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
