"""`fairway gateway`: serve, acknowledged means on disk."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from fairway.cli.exits import ExitCode
from fairway.cli.options import argument, option

_URLS = argument(None, "URL...", "scheme://host:port?options; port 0 is free.")
_LAKE = option(None, metavar="DIR", help="The lake: a folder, or s3://bucket/prefix; made if it is missing.")
_JOURNAL = option(None, metavar="DIR", help="Where the journal lies.  [default: in the lake's folder]")
_CONFIG = option(None, metavar="FILE.toml", help="Settings of the same names; options win.")
_CHECK = option(False, "--check", help="Only see whether the settings are right.")
_NAME = option(None, help="Name of this gateway in the lake.  [default: gateway]")
_WORKERS = option(None, min=1, help="Processes on the same ports.  [default: 1]")
_METRICS = option(None, metavar="HOST:PORT", help="Serve /metrics and /healthz there.")
_LOG = option(None, metavar="text|json", help="How to log.  [default: text]")
_VERBOSE = option(False, "--verbose", help="Log every segment too.")
_COMMIT_AFTER = option(None, metavar="TIME", help="Gather messages of many peers for so long.  [default: 5ms]")
_COMMIT_MESSAGES = option(None, min=1, help="Commit when so many are gathered.  [default: 2000]")
_SEAL_AFTER = option(None, metavar="TIME", help="Seal after so long.  [default: 5s]")
_SEAL_BYTES = option(None, metavar="SIZE", help="Seal when so much waits.  [default: 64MiB]")
_BACKLOG = option(None, metavar="SIZE", help="Stop acknowledging when so much is unsealed.  [default: 1GiB]")
_JOURNAL_MAX = option(None, metavar="SIZE", help="Stop acknowledging when the journal is so large.")
_DRAIN = option(None, metavar="TIME", help="How long a stop may take.  [default: 10s]")
_ALLOW = option(None, metavar="NETWORK", help="Who may send; may be repeated.")
_DENY = option(None, metavar="NETWORK", help="Who may not; wins over --allow.")
_PER_ADDRESS = option(None, min=0, help="Sessions of one address.  [default: 4096]")
_PER_PREFIX = option(None, min=0, help="Sessions of one prefix, an IPv4 address or IPv6 /64.  [default: 16384]")
_HALF_OPEN = option(None, min=0, help="Half-open sessions of a prefix.  [default: 1024]")
_RATE = option(None, min=0, help="Datagrams a second of a prefix.  [default: no limit]")


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
