"""`fairway analyze`: captures to tables."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.cli import options
from fairway.cli.exits import ExitCode
from fairway.cli.options import argument, option, settings_of
from fairway.cli.status import Stages
from fairway.core.errors import BadOption, DamagedCapture

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairway.lake.analysis.job import Analysis
    from fairway.lake.analysis.summary import Summary
    from fairway.lake.session import Session as SparkSession
    from fairway.store.lakes import Lake

SMALL_BYTES = 64 << 20
"""Captures up to this size are analysed before the JVM's better compiler would have paid for itself."""
QUICK_JVM = "-XX:TieredStopAtLevel=1"
STEPS = 5
"""Captures, packets, messages, violations, sessions."""


def analyze(
    files: list[str] | None = argument(None, "FILE...", "Captures, folders of them, or globs."),
    lake: Path = options.LAKE,
    ports: list[str] = option(
        [], "--map", metavar="PROTOCOL=PORT", help="The protocol of a port; otherwise told by content."
    ),
    payload: bool = option(False, "--payload", help="Keep the bodies of datagrams."),
    follow: Path | None = option(
        None, "--follow", metavar="DIR", help="Take captures from this folder as they are completed."
    ),
    part_bytes: int | None = option(None, "--part-bytes", help="How much of a file one task reads (96 MiB)."),
    master: str = options.MASTER,
    conf: list[str] = options.CONF,
    json: bool = options.json("One JSON object per run."),
) -> int:
    """Turn captures into tables: packets, sessions, transfers, violations, timeline.

    A capture that the lake knows is not read again. Leaves with 1 when a file could not be read, or not to its end;
    what could be read is in the tables all the same.

    \b
    Example:
      fairway analyze capture.pcapng --lake lake --map udpc=9000
    """
    from fairway.lake.captures.parts import PART_BYTES
    from fairway.lake.captures.recognition import parsed_port_map
    from fairway.lake.session import end, start
    from fairway.store.lakes import Lake
    from fairway.store.locations import location_of

    named = list(files or [])
    if not named and follow is None:
        raise BadOption("no capture is named; name files, or a folder with --follow")
    port_map = parsed_port_map(ports) if ports else None
    settings = _settings(settings_of(conf), named, follow)
    location_of(lake)  # a wrong address is said before anything else
    readable, unreadable = _looked_at(named)
    if unreadable and not readable and follow is None:
        return ExitCode.FAILED
    opened = Lake(lake)
    spark = start("fairway analyze", master=master, settings=settings)
    once = partial(
        _once, spark, opened, port_map=port_map, payload=payload, part_bytes=part_bytes or PART_BYTES, as_json=json
    )
    try:
        if follow is not None:
            return _follow(once, readable, follow)
        return once(readable) or (ExitCode.FAILED if unreadable else ExitCode.DONE)
    finally:
        end(spark)


def _looked_at(named: list[str]) -> tuple[list[str], int]:
    """Return the files that can be opened; say at once, before Spark starts, what is wrong with how many others."""
    from fairway.lake.captures.files import listed, seen

    readable: list[str] = []
    paths = listed(named)
    for path in paths:
        try:
            readable.append(seen(path).path)
        except DamagedCapture as error:
            print(f"fairway: {error}", file=sys.stderr)
    return readable, len(paths) - len(readable)


def _settings(configured: dict[str, str], files: list[str], follow: Path | None) -> dict[str, str]:
    from fairway.lake.captures.files import listed

    sizes = (os.path.getsize(name) for name in listed(files) if os.path.isfile(name))
    small = follow is None and sum(sizes) <= SMALL_BYTES
    return ({"spark.driver.extraJavaOptions": QUICK_JVM} if small else {}) | configured


def _once(spark: SparkSession, lake: Lake, files: list[str], *, as_json: bool, **settings: Any) -> int:
    """Analyse files, and say what was found: sentences for people, one JSON object for programs."""
    from fairway.lake.analysis.job import analyze as work
    from fairway.lake.analysis.summary import summary

    began_s = time.monotonic()
    with Stages(spark, STEPS) as tell:
        analysis = work(spark, lake, files, tell=tell, **settings)
    for problem in analysis.problems:
        print(f"fairway: {problem}", file=sys.stderr)
    found, seconds = summary(lake), time.monotonic() - began_s
    if as_json:
        print(dumps(asdict(analysis) | asdict(found) | {"seconds": round(seconds, 3)}), flush=True)
    else:
        print("\n".join(_sentences(analysis, found, seconds)), flush=True)
    return ExitCode.FAILED if analysis.problems else ExitCode.DONE


def _follow(once: Callable[[list[str]], int], files: list[str], folder: Path) -> int:
    """Analyse files, then those that are completed in a folder, until a signal comes."""
    from fairway.cli.ending import ending_by_signals
    from fairway.lake.analysis.follow import Follower

    follower = Follower(folder)
    with ending_by_signals() as ending:
        if files:
            once(files)
        while not ending.wanted.is_set():
            complete = follower.complete()
            try:
                if complete:
                    once(complete)
            except Exception:
                if not ending.wanted.is_set():  # otherwise the next run does it
                    raise
            ending.wanted.wait(follower.look_again_s)
    return ending.code


def _sentences(analysis: Analysis, found: Summary, seconds: float) -> list[str]:
    files = f"{analysis.files_added:,} new, {analysis.files_known:,} known"
    if analysis.remapped:
        files += "; the port map has changed, so everything was computed again"
    decoded = ", ".join(f"{count:,} {protocol}" for protocol, count in found.packets.items()) or "none"
    lines = [
        f"files       {files}",
        f"packets     {decoded}",
        f"sessions    {found.sessions:,} with {found.transfers:,} messages",
        f"violations  {found.violations:,}",
    ]
    lines += [f"worst       {_worst(session)}" for session in found.worst]
    rate = f", {analysis.records / seconds:,.0f} records/s" if analysis.records else ""
    return [*lines, f"time        {seconds:.1f} s{rate}"]


def _worst(session: dict[str, object]) -> str:
    words = [
        f"{session['session']} at {session['point'] or 'the only point'}: {session['caller']} to {session['callee']}"
    ]
    for name, label in (("loss_out", "lost there"), ("loss_in", "lost back")):
        loss = session[name]
        if isinstance(loss, float):
            words.append(f"{loss:.1%} {label}")
    rtt_us = session["rtt_p50_us"]
    if isinstance(rtt_us, int):
        words.append(f"round trip {rtt_us / 1_000:.1f} ms")
    return ", ".join([*words, f"{session['violations']} violations", str(session["ending"])])
