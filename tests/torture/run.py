"""One run of torture, from the first sender to the verdict."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from time import monotonic, sleep

from fairway.core.errors import FairwayError
from fairway.core.layout import TABLES
from fairway.core.tables import MESSAGES
from fairway.demo.fleet import UNKNOWN, Judgement, Ledger, judge
from fairway.demo.keys import Keys
from fairway.demo.relay import bad_links
from fairway.demo.services import GatewayService, Service, stream_service
from fairway.protocols import NAMES
from tests.torture.disk import Disk, small_disk
from tests.torture.lanes import GatewayLane, StreamLane, Tally, Tell
from tests.torture.plan import GATEWAY, Fault, Plan, draw
from tests.torture.readers import SPARK_SETTINGS, readers
from tests.torture.senders import Senders, crews, sending
from tests.torture.watching import Watch

NAME = "gateway"
INTERVAL_S = 0.2
"""Between two messages of a device."""
GATEWAY_OPTIONS = ("--seal-after", "200ms", "--drain", "60s")
STREAM_OPTIONS = ("--interval", "300ms", "--keep", "1s", "--master", "local[1]")
LAST_PASS_S = 1_800.0
LOOK_S = 0.2
RECONCILE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a run."""

    seed: int
    kills: dict[str, int]
    pauses: int
    disk_fills: int
    disk: str
    messages: int
    unknown: int
    looks: dict[str, int]
    """By reader."""
    longest_wait_s: float
    slowest_start_s: float
    minutes: float
    judgement: Judgement | None
    failures: list[str]

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return not self.failures and self.judgement is not None and self.judgement.kept

    def lines(self) -> list[str]:
        """Return the verdict as it is printed."""
        killed = ", ".join(f"{count} {who}" for who, count in sorted(self.kills.items()))
        done = f"{sum(self.kills.values())} kills ({killed}), {self.pauses} pauses, {self.disk_fills} full disks"
        return [
            f"{done} ({self.disk}), in {self.minutes:.1f} min",
            f"{self.judgement}; {self.unknown:,} unknown",
            "looks meanwhile: " + ", ".join(f"{count:,} {who}" for who, count in sorted(self.looks.items())),
            f"{self.longest_wait_s:.1f} s was the longest wait for the acknowledgement of a small message",
            f"{self.slowest_start_s:.1f} s was the slowest start of a gateway",
            *(f"FAILED {failure}" for failure in self.failures),
            "THE PROMISE WAS KEPT" if self.kept else "THE PROMISE WAS BROKEN",
        ]


@dataclass(slots=True)
class Torture:
    """A run in a folder of its own."""

    kills: int
    seed: int
    out: Path
    tell: Tell
    minutes: float = 0.0
    """Nothing more is begun after so long; 0 is no limit."""
    stream_kills: int | None = None
    lake: str = ""
    """The address of a lake in an object store; otherwise it is a folder on a disk that can be filled."""
    dtls: bool = False

    def run(self) -> Verdict:
        """Run the plan of the seed and judge."""
        plan = draw(self.kills, self.seed, self.stream_kills)
        for line in plan.lines():
            self.tell(line)
        evidence = self.out / "evidence"
        (self.out / "temporary").mkdir(parents=True, exist_ok=True)
        with small_disk(self.out / "disk", evidence) as disk:
            verdict = Course(self, disk).run(plan)
            if not verdict.kept:
                evidence.mkdir()
        (self.out / "verdict.json").write_text(json.dumps(asdict(verdict), indent=1))
        return verdict

    @property
    def keys(self) -> Keys | None:
        """The identities of gateway and devices, over DTLS."""
        return Keys(self.out / "keys") if self.dtls else None

    @property
    def environment(self) -> dict[str, str]:
        """What killed processes leave behind lies in the folder of the run."""
        temporary = str(self.out / "temporary")
        return {"TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary}

    @property
    def spark_options(self) -> list[str]:
        """Options of a stream that starts quickly."""
        settings = dict(SPARK_SETTINGS)
        settings["spark.driver.extraJavaOptions"] += f" -Djava.io.tmpdir={self.out / 'temporary'}"
        return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


class Course:
    """The run on its disk, while it lasts."""

    def __init__(self, torture: Torture, disk: Disk) -> None:
        self._torture = torture
        self._disk = disk
        self._lake = torture.lake or str(disk.folder / "lake")
        self._journals = disk.folder / "journals" if torture.lake else None
        self._tally = Tally(torture.tell)
        self._watch = Watch(
            self._lake, NAME, self._tally.failure, journals=self._journals, was_full_since=disk.was_full_since
        )
        self._began_s = monotonic()
        environment = {**disk.environment, **torture.environment}
        self._gateway = GatewayService(
            self._lake,
            NAMES,
            (*GATEWAY_OPTIONS, *self._journal_option),
            NAME,
            environment=environment,
            keys=torture.keys,
        )
        self._stream = self._streaming(*STREAM_OPTIONS)

    @property
    def _journal_option(self) -> list[str]:
        return ["--journal", str(self._journals)] if self._journals is not None else []

    def _streaming(self, *options: str) -> Service:
        torture = self._torture
        return stream_service(self._lake, [*options, *torture.spark_options], torture.environment)

    def run(self, plan: Plan) -> Verdict:
        """Run everything; return what came of it."""
        ledger, judgement = Ledger(), None
        torture = self._torture
        with ExitStack() as running:
            for service in (self._gateway, self._stream):
                running.enter_context(service)
            self._gateway.serve()
            urls, _ = running.enter_context(bad_links(self._gateway.urls, torture.seed))
            orders = crews(urls, f"torture-{torture.seed}", interval_s=INTERVAL_S, keys=torture.keys)
            senders = running.enter_context(sending(orders, torture.out / "ledger"))
            all_readers = running.enter_context(readers(torture.environment))
            running.enter_context(self._watch.watching(all_readers))
            running.callback(self._tally.over.set)
            self._inject(plan, senders)
            try:
                ledger = self._drained(senders)
                self._last_pass()
                judgement = judge(ledger, f"{self._lake}/{TABLES}/{MESSAGES.name}")
            except FairwayError as error:
                self._tally.failure(str(error))
        return self._verdict(ledger, judgement)

    def _inject(self, plan: Plan, senders: Senders) -> None:
        """Run both lanes, then further kills for those that found nothing to kill."""
        torture, tally = self._torture, self._tally
        self._lanes(plan, senders)
        instants = Random(torture.seed)
        while (missed := torture.kills - sum(tally.kills.values())) > 0 and not tally.over.is_set():
            faults = tuple(Fault(target=GATEWAY, after_s=instants.uniform(0.0, 1.5)) for _ in range(missed))
            self._lanes(Plan(faults, ()), senders)

    def _lanes(self, plan: Plan, senders: Senders) -> None:
        tally, disk = self._tally, self._disk
        of_stream = StreamLane(self._stream, self._gateway, self._lake, plan.stream, tally, disk)
        of_gateway = GatewayLane(self._gateway, plan.gateway, tally, disk)
        of_stream.other, of_gateway.other = of_gateway, of_stream
        lanes = (of_stream, of_gateway)
        for lane in lanes:
            lane.start()
        while any(lane.is_alive() for lane in lanes):
            sleep(LOOK_S)
            if self._torture.minutes and monotonic() - self._began_s > 60 * self._torture.minutes:
                tally.over.set()
            if not senders.running and not tally.over.is_set():
                tally.failure("the senders have ended")

    def _drained(self, senders: Senders) -> Ledger:
        """Serve until every sender has its outcomes, then ask the gateway to end."""
        if not self._gateway.running:
            self._gateway.serve()
        ledger = senders.finish()
        code = self._gateway.stop()
        if code != 0:
            self._tally.failure(f"the last gateway left with {code}: {self._gateway.lines[-3:]}")
        return ledger

    def _last_pass(self) -> None:
        """Land what is left, and have the lake counted by its own command."""
        self._stream.kill()
        with self._streaming("--available-now", "--keep", "1s", "--master", "local[1]") as last:
            last.start()
            if last.ended(LAST_PASS_S) != 0:
                self._tally.failure(f"the last pass of the stream left with {last.code}: {last.lines[-3:]}")
        with Service(["reconcile", "--lake", self._lake, *self._journal_option]) as counting:
            counting.start()
            if counting.ended(RECONCILE_S) != 0:
                self._tally.failure(f"fairway reconcile left with {counting.code}: {counting.lines[-3:]}")

    def _verdict(self, ledger: Ledger, judgement: Judgement | None) -> Verdict:
        tally, disk = self._tally, self._disk
        return Verdict(
            seed=self._torture.seed, kills=dict(tally.kills), pauses=tally.pauses, disk_fills=disk.fills,
            disk="a small file system" if disk.mounted else "the gateway's quota", messages=len(ledger.outcomes),
            unknown=ledger.counts()[UNKNOWN], looks=dict(self._watch.looks),
            longest_wait_s=ledger.longest_s(), slowest_start_s=tally.slowest_start_s,
            minutes=(monotonic() - self._began_s) / 60, judgement=judgement, failures=tally.failures,
        )  # fmt: skip
