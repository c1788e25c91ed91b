"""`fairway gateway`: serve, acknowledged means on disk."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from fairway.cli.ending import until_signal
from fairway.cli.exits import ExitCode
from fairway.cli.options import argument, option


def gateway(
    urls: list[str] = argument(None, "URL...", "scheme://host:port?options; port 0 is free."),
    lake: Path | None = option(
        None, metavar="DIR", help="The lake: a folder, or s3://bucket/prefix; made if it is missing."
    ),
    journal: Path | None = option(None, metavar="DIR", help="Where the journal lies.  [default: in the lake's folder]"),
    config: Path | None = option(None, metavar="FILE.toml", help="Settings of the same names; options win."),
    check: bool = option(False, "--check", help="Only see whether the settings are right."),
    name: str | None = option(None, help="Name of this gateway in the lake.  [default: gateway]"),
    workers: int | None = option(None, min=1, help="Processes on the same ports.  [default: 1]"),
    metrics: str | None = option(None, metavar="HOST:PORT", help="Serve /metrics and /healthz there."),
    log: str | None = option(None, metavar="text|json", help="How to log.  [default: text]"),
    verbose: bool = option(False, "--verbose", help="Log every segment too."),
    commit_after: str | None = option(
        None, metavar="TIME", help="Gather messages of many peers for so long.  [default: 5ms]"
    ),
    commit_messages: int | None = option(None, min=1, help="Commit when so many are gathered.  [default: 2000]"),
    seal_after: str | None = option(None, metavar="TIME", help="Seal after so long.  [default: 5s]"),
    seal_bytes: str | None = option(None, metavar="SIZE", help="Seal when so much waits.  [default: 64MiB]"),
    backlog_bytes_max: str | None = option(
        None, metavar="SIZE", help="Stop acknowledging when so much is unsealed.  [default: 1GiB]"
    ),
    journal_bytes_max: str | None = option(
        None, metavar="SIZE", help="Stop acknowledging when the journal is so large."
    ),
    drain: str | None = option(None, metavar="TIME", help="How long a stop may take.  [default: 10s]"),
    allow: list[str] = option(None, metavar="NETWORK", help="Who may send; may be repeated."),
    deny: list[str] = option(None, metavar="NETWORK", help="Who may not; wins over --allow."),
    sessions_per_address_max: int | None = option(None, min=0, help="Sessions of one address.  [default: 4096]"),
    sessions_per_prefix_max: int | None = option(
        None, min=0, help="Sessions of one prefix, an IPv4 address or IPv6 /64.  [default: 16384]"
    ),
    half_open_per_prefix_max: int | None = option(None, min=0, help="Half-open sessions of a prefix.  [default: 1024]"),
    datagrams_per_second: int | None = option(None, min=0, help="Datagrams a second of a prefix.  [default: no limit]"),
) -> int:
    """Serve: take messages, make them durable, then acknowledge them.

    Says "listening URL" on standard error for each URL, with the real port. SIGTERM drains and ends with 0, Ctrl-C
    with 130; a second one ends at once. Sessions go on where they were at the next start.

    \b
    Example:
      fairway gateway udpc://127.0.0.1:9000 mrp://127.0.0.1:8192 --lake /srv/lake --metrics 127.0.0.1:9464
    """
    # By identity: 0 is a value, and equal to False.
    given = {
        key: value
        for key, value in locals().items()
        if key not in {"config", "check"} and value is not None and value is not False and value != []
    }
    from fairway.gateway.settings import build, read_file, require_packages

    settings = build({**(read_file(config) if config is not None else {}), **given})
    require_packages(settings)
    if check:
        for plan in settings.plans():
            plan.machine()
        print(f"the settings are right: {len(settings.urls)} URLs, lake {settings.lake}, name {settings.name}")
        return 0
    # While modules load there is nothing to drain.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.DONE))
    from fairway.gateway.home import prepare_lake
    from fairway.gateway.process import run

    until_signal(lambda: prepare_lake(settings.lake), "stopped", terminated=ExitCode.DONE)
    return run(settings)
