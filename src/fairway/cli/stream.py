"""`fairway stream`: what gateways have sealed becomes tables, exactly once, until it is stopped."""

from __future__ import annotations

import sys
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.cli import options
from fairway.cli.durations import seconds_of
from fairway.cli.ending import Ending, ending_by_signals, until_signal
from fairway.cli.exits import ExitCode
from fairway.cli.options import option
from fairway.cli.spark import settings_of
from fairway.cli.status import Status
from fairway.core.errors import BadOption

if TYPE_CHECKING:
    from fairway.lake.landing.stream import Happening, Stream

STOPPING = "stopping; what is not in the tables by then lands at the next start"
"""Said at once when a signal comes; a batch in the middle is finished first."""


def stream(
    lake: Path = options.LAKE,
    available_now: bool = option(False, "--available-now", help="Land what is there, then leave."),
    json_schema: list[str] = option(
        [],
        "--json-schema",
        metavar="NAME=COLUMNS",
        help="Also fill a typed table from JSON bodies: readings='sensor STRING, celsius DOUBLE'; may be repeated.",
    ),
    route: list[str] = option(
        [],
        "--route",
        metavar="NAME=CONDITIONS",
        help="Which messages a typed table is meant for: readings='protocol=mrp&port=8192'. May be given repeatedly.",
    ),
    interval: str = option("3s", metavar="TIME", help="From one look for new segments to the next."),
    keep: str = option("7d", metavar="TIME", help="How long landed segments are kept."),
    history: str = option("1h", metavar="TIME", help="How long earlier versions of the tables can be read."),
    master: str = options.MASTER,
    conf: list[str] = options.CONF,
    json: bool = options.json("One JSON object per batch, compaction and removal."),
) -> int:
    """Land what gateways have sealed in tables, exactly once.

    Runs until SIGTERM or Ctrl-C; a batch in the middle is finished. Killed at any moment, it goes on where it was.

    \b
    Example:
      fairway stream --lake lake --json-schema readings='sensor STRING, celsius DOUBLE, at TIMESTAMP'
    """
    seconds = {
        "interval_s": _positive(interval, "--interval"),
        "keep_s": seconds_of(keep, "--keep"),
        "history_s": seconds_of(history, "--history"),
    }
    settings = settings_of(conf) | {"spark.sql.session.timeZone": "UTC"}  # or messages would land in another day
    with ending_by_signals(STOPPING) as ending:
        from fairway.lake.landing.typed import parse_wishes
        from fairway.store.lakes import Lake

        wishes = parse_wishes(json_schema, route)
        opened = until_signal(lambda: Lake(lake), "stopped", terminated=ExitCode.DONE)
        with _Teller(json, ending) as teller:
            from fairway.lake.landing.stream import Stream, StreamOptions

            chosen = StreamOptions(available_now=available_now, wishes=wishes, **seconds)
            teller.stream = Stream(opened, chosen, teller)
            _run(teller.stream, master, settings, ending)
    return ending.code


def _run(running: Stream, master: str, settings: dict[str, str], ending: Ending) -> None:
    from fairway.lake.session import StartStopped, end, start

    sessions: list[Any] = []

    def open_session() -> Any:
        ending.starting = True
        sessions.append(start("fairway stream", master=master, settings=settings, stop=ending.wanted))
        ending.starting = False
        ending.watch()  # Spark takes SIGINT for itself when it starts
        return sessions[0]

    try:
        running.run(open_session, ending.wanted)
    except StartStopped:
        assert ending.wanted.is_set()
    finally:
        for session in sessions:
            end(session)


def _positive(text: str, option: str) -> float:
    seconds = seconds_of(text, option)
    if seconds < 0.001:
        raise BadOption(f"{option} is {text!r}; it must be longer than nothing")
    return seconds


class _Teller(Status):
    """Prints what happens, a line each; on a terminal a line at the bottom shows what goes on."""

    def __init__(self, as_json: bool, ending: Ending) -> None:
        super().__init__(self._text)
        self.stream: Stream | None = None
        self._as_json = as_json
        self._ending = ending
        self._landed = 0
        self._activity, self._since_s = "starting Spark", time.monotonic()
        if not self.shown:
            print(f"fairway: {self._activity}", file=sys.stderr, flush=True)

    def __call__(self, happening: Happening) -> None:
        self._landed += getattr(happening, "messages", 0)
        self.print(dumps(_row(happening)) if self._as_json else _sentence(happening))

    def _text(self) -> str:
        activity = self._activity if self.stream is None else self.stream.activity
        if self._ending.wanted.is_set():
            activity = f"stopping; {activity}"
        if activity != self._activity:
            self._activity, self._since_s = activity, time.monotonic()
        landed = f"  {self._landed:,} messages landed" if self._landed else ""
        return f"{activity}  {time.monotonic() - self._since_s:.0f} s{landed}"


def _row(happening: Happening) -> dict[str, object]:
    from dataclasses import asdict

    return {"event": type(happening).__name__.lower()} | asdict(happening)


def _sentence(happening: Happening) -> str:
    from fairway.lake.landing.batch import Landed
    from fairway.lake.landing.stream import Repaired, Restarted
    from fairway.lake.landing.tables import Begun
    from fairway.store.tending import Compacted

    if isinstance(happening, Begun):
        return f"{happening.table} is new: it holds messages that land from now on, not those before"
    if isinstance(happening, Repaired):
        return f"{happening.table}: removed {happening.removed}, which was left half-written; what it held lands again"
    if isinstance(happening, Restarted):
        return f"{happening.reason}; started again"
    if isinstance(happening, Landed):
        rejected = f", {happening.rejected:,} bodies rejected" if happening.rejected else ""
        rate = f"{happening.messages / max(happening.seconds, 0.001):,.0f}/s"
        return (
            f"version {happening.version}: {happening.messages:,} messages in {happening.seconds:.1f} s "
            f"({rate}){rejected}"
        )
    if isinstance(happening, Compacted):
        return f"compacted {happening.table}: {happening.files_before:,} files to {happening.files_after:,}"
    return f"removed {happening.segments:,} landed segments"
