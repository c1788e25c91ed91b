"""How verbs declare and read arguments and options, and those that several have: one means the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from fairway.core.errors import BadOption

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def option(default: Any, name: str = "", *, metavar: str | None = None, **more: Any) -> Any:
    """Return an option; its default is shown where it has one."""
    names = (name,) if name else ()
    return typer.Option(default, *names, metavar=metavar, show_default=default not in (None, ..., []), **more)


def argument(default: Any, metavar: str, text: str) -> Any:
    return typer.Argument(default, metavar=metavar, show_default=False, help=text)


def json(text: str = "One JSON object per line.") -> Any:
    """Return the option that turns what is printed into JSON."""
    return typer.Option(False, "--json", help=text)


URL = argument(..., "URL", "scheme://host:port?options")
URLS = argument(..., "URL...", "scheme://host:port?options; port 0 is free.")
LAKE = option(..., "--lake", metavar="DIR", help="The lake: a folder, or s3://bucket/prefix.")
MASTER = option("local[*]", help="Where Spark runs: local[*], spark://host:port, yarn, k8s://...")
CONF = option([], "--conf", metavar="KEY=VALUE", help="A setting of Spark.")
TRACE = option(None, metavar="FILE.pcapng", help="Record every datagram.")


def seconds_of(text: str, option: str) -> float:
    """Return the seconds; raise `BadOption` for anything but a number with its unit."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise BadOption(f"{option} is {text!r}; it must be a number and a unit, such as 500ms, 5s, 10m, 2h or 7d")
    return float(found[1]) * SECONDS[found[2]]


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Turn `--conf key=value` into Spark's settings; raise `BadOption` for anything else."""
    settings = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise BadOption(f"--conf is {pair!r}; it must be KEY=VALUE, such as spark.driver.memory=4g")
        settings[name] = value
    return settings
