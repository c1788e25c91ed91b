"""What is said while serving: lines for people, or one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, gateway, logger, text."""

    def __init__(self, gateway: str) -> None:
        super().__init__()
        self._gateway = gateway

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "gateway": self._gateway,
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(line)


def set_up(style: str, gateway: str, *, verbose: bool) -> None:
    """Has everything that Fairway logs go to standard error in this style."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s %(levelname)s {gateway}: %(message)s")
    handler.setFormatter(JsonLines(gateway) if style == "json" else text)
    root = logging.getLogger("fairway")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(logging.DEBUG if verbose else logging.INFO)


def warn_open(urls: Iterable[str]) -> None:
    """Says that anybody may call."""
    logging.getLogger("fairway.gateway").warning(
        "anybody who reaches %s may send: name who may with --allow NETWORK, or listen on 127.0.0.1", ", ".join(urls)
    )
