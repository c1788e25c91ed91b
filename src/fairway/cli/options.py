"""How verbs declare arguments and options, and those that several have: one means the same everywhere."""

from __future__ import annotations

from typing import Any

import typer


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
