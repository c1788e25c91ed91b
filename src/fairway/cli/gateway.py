"""`fairway gateway`: serve, acknowledged means on disk."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import typer

from fairway.cli.exits import ExitCode

_URLS = typer.Argument(None, metavar="URL...", show_default=False, help="scheme://host:port?options; port 0 is free.")
_LAKE = typer.Option(
    None, metavar="DIR", show_default=False, help="The lake: a folder, or s3://bucket/prefix; made if it is missing."
)
_JOURNAL = typer.Option(
    None, metavar="DIR", show_default=False, help="Where the journal lies.  [default: in the lake's folder]"
)
_CONFIG = typer.Option(None, metavar="FILE.toml", show_default=False, help="Settings of the same names; options win.")
_CHECK = typer.Option(False, "--check", help="Only see whether the settings are right.")
_NAME = typer.Option(None, help="Name of this gateway in the lake.  [default: gateway]", show_default=False)
_WORKERS = typer.Option(None, min=1, help="Processes on the same ports.  [default: 1]", show_default=False)
_METRICS = typer.Option(None, metavar="HOST:PORT", show_default=False, help="Serve /metrics and /healthz there.")
_LOG = typer.Option(None, metavar="text|json", show_default=False, help="How to log.  [default: text]")
_VERBOSE = typer.Option(False, "--verbose", help="Log every segment too.")
_COMMIT_AFTER = typer.Option(
    None, metavar="TIME", show_default=False, help="Gather messages of many peers for so long.  [default: 5ms]"
)
_COMMIT_MESSAGES = typer.Option(
    None, min=1, show_default=False, help="Commit when so many are gathered.  [default: 2000]"
)
_SEAL_AFTER = typer.Option(None, metavar="TIME", show_default=False, help="Seal after so long.  [default: 5s]")
_SEAL_BYTES = typer.Option(None, metavar="SIZE", show_default=False, help="Seal when so much waits.  [default: 64MiB]")
_BACKLOG = typer.Option(
    None, metavar="SIZE", show_default=False, help="Stop acknowledging when so much is unsealed.  [default: 1GiB]"
)
_JOURNAL_MAX = typer.Option(
    None, metavar="SIZE", show_default=False, help="Stop acknowledging when the journal is so large."
)
_DRAIN = typer.Option(None, metavar="TIME", show_default=False, help="How long a stop may take.  [default: 10s]")
_ALLOW = typer.Option(None, metavar="NETWORK", show_default=False, help="Who may send; may be repeated.")
_DENY = typer.Option(None, metavar="NETWORK", show_default=False, help="Who may not; wins over --allow.")
_PER_ADDRESS = typer.Option(None, min=0, show_default=False, help="Sessions of one address.  [default: 4096]")
_PER_PREFIX = typer.Option(
    None, min=0, show_default=False, help="Sessions of one prefix, an IPv4 address or IPv6 /64.  [default: 16384]"
)
_HALF_OPEN = typer.Option(None, min=0, show_default=False, help="Half-open sessions of a prefix.  [default: 1024]")
_RATE = typer.Option(None, min=0, show_default=False, help="Datagrams a second of a prefix.  [default: no limit]")


def gateway(
    urls: list[str] = _URLS,
    lake: Path | None = _LAKE,
    journal: Path | None = _JOURNAL,
    config: Path | None = _CONFIG,
    check: bool = _CHECK,
    name: str | None = _NAME,
    workers: int | None = _WORKERS,
    metrics: str | None = _METRICS,
    log: str | None = _LOG,
    verbose: bool = _VERBOSE,
    commit_after: str | None = _COMMIT_AFTER,
    commit_messages: int | None = _COMMIT_MESSAGES,
    seal_after: str | None = _SEAL_AFTER,
    seal_bytes: str | None = _SEAL_BYTES,
    backlog_bytes_max: str | None = _BACKLOG,
    journal_bytes_max: str | None = _JOURNAL_MAX,
    drain: str | None = _DRAIN,
    allow: list[str] = _ALLOW,
    deny: list[str] = _DENY,
    sessions_per_address_max: int | None = _PER_ADDRESS,
    sessions_per_prefix_max: int | None = _PER_PREFIX,
    half_open_per_prefix_max: int | None = _HALF_OPEN,
    datagrams_per_second: int | None = _RATE,
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
    from fairway.gateway.process import run

    return run(settings)
