"""A worker of a supervised gateway: `python -m fairway.gateway.worker ORDER`, ORDER being JSON.

It says one line on standard output when it serves, drains on SIGTERM, and ends at once when its standard input does:
then the supervisor is gone, and a new one will bind new sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from fairway.core.errors import FairwayError
from fairway.gateway.process import set_up_logs
from fairway.gateway.service import Service
from fairway.gateway.settings import build

EXIT_FAILED = 1


def main() -> int:
    """Serve until told to end, and return the exit code."""
    order = json.loads(sys.argv[1])
    settings = build(order["settings"])
    set_up_logs(settings.log, order["name"], verbose=settings.verbose)
    try:
        asyncio.run(_serve(order, Service(settings, order["name"])))
    except (FairwayError, OSError) as error:
        print(f"fairway: {order['name']}: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    return 0


async def _serve(order: dict[str, Any], service: Service) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # Whoever signals all processes of a service signals the supervisor too, which tells when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop.add_reader(sys.stdin.fileno(), _orphaned)
    await service.open(order["descriptors"], order["number"])
    print(json.dumps({"metrics": service.metrics_url}), flush=True)
    await service.run(stop)


def _orphaned() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        os._exit(EXIT_FAILED)


if __name__ == "__main__":
    raise SystemExit(main())
