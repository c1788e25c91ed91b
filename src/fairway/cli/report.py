"""`fairway report`: one self-contained HTML file out of the tables of a lake, or of a sweep of the lab."""

from __future__ import annotations

from json import dumps
from pathlib import Path

from fairway.cli.exits import ExitCode
from fairway.cli.options import json as json_option
from fairway.cli.options import option
from fairway.core.errors import BadOption, FairwayError
from fairway.store.files import write_file


def report(
    lake: Path | None = option(None, metavar="DIR", help="The lake that `fairway analyze` has written."),
    lab: Path | None = option(None, metavar="DIR", help="The folder that `fairway lab run` has written."),
    out: Path = option(Path("report.html"), metavar="FILE", help="Where the page goes."),
    listed: int = option(2_000, "--list", metavar="N", help="Sessions in the list, worst first."),
    detailed: int = option(30, "--details", metavar="N", help="Sessions with plots, worst first."),
    session: list[str] = option([], "--session", metavar="KEY", help="Plots of this session too; may be repeated."),
    json: bool = json_option("One JSON object about the page."),
) -> int:
    """Draw what the captures tell, or what the lab found, as one HTML file that opens offline.

    \b
    Example:
      fairway analyze capture.pcapng --lake lake && fairway report --lake lake --out report.html
    """
    if not out.parent.is_dir():
        raise FairwayError(f"There is no folder {out.parent} to put {out.name} into: make it first.")
    # In one step: whoever has the old page open keeps a whole one.
    write_file(out, _page(lake, lab, listed, detailed, tuple(session)))
    size = out.stat().st_size
    print(dumps({"path": str(out), "bytes": size}) if json else f"{out}: {size / 1e6:.1f} MB, opens in any browser")
    return ExitCode.DONE


def _page(lake: Path | None, lab: Path | None, listed: int, detailed: int, sessions: tuple[str, ...]) -> str:
    if lake is not None and lab is None:
        from fairway.report.capture import Choice, capture_report

        return capture_report(lake, Choice(listed=listed, detailed=detailed, sessions=sessions))
    if lab is not None and lake is None:
        from fairway.report.lab import lab_report

        return lab_report(lab)
    raise BadOption("say one of --lake DIR and --lab DIR")
