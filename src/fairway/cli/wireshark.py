"""`fairway wireshark`: dissectors for the four protocols, put where Wireshark looks for them."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path

from fairway.cli.exits import ExitCode
from fairway.cli.options import option
from fairway.core.errors import BadOption
from fairway.store.files import write_file

PLUGINS_FOLDER = Path(".local", "lib", "wireshark", "plugins")
"""Below the home folder, where no Wireshark is there to be asked."""
FOLDER_LINE = "Personal Lua Plugins:"
ANSWER_SECONDS_MAX = 60


def wireshark(
    install: bool = option(False, "--install", help="Put the dissectors into your folder of Lua plugins."),
    uninstall: bool = option(False, "--uninstall", help="Take them away again."),
    show: bool = option(False, "--print", help="Print them."),
    folder: Path | None = option(None, metavar="DIR", help="Another folder than the one Wireshark names."),
) -> int:
    """Teach Wireshark and tshark the four protocols.

    mrp and rup are recognised by their bytes, mrp also on port 8192. udpc and pydevts need their ports, in Wireshark's
    preferences (Protocols, UDPC) or on the command line.

    \b
    Example:
      fairway wireshark --install
      tshark -r trace.pcapng -o udpc.ports:9000 -Y udpc
    """
    from fairway.capture.dissectors import FILE_NAME

    if [install, uninstall, show].count(True) != 1:
        raise BadOption("say one of --install, --uninstall and --print")
    if show:
        print(lua(), end="")
        return ExitCode.DONE
    path = (_plugins() if folder is None else folder) / FILE_NAME
    if install:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, lua())
        print(f"{path}: Wireshark reads it at its next start")
    elif path.exists():
        path.unlink()
        print(f"{path}: removed")
    else:
        print(f"{path}: was not there")
    return ExitCode.DONE


def lua() -> str:
    """Return the whole plugin, one file for the four protocols."""
    from fairway.capture.dissectors import lua_tables

    return f"{lua_tables()}\n{files('fairway.capture').joinpath('dissectors.lua').read_text()}"


def _plugins() -> Path:
    """Return the folder that tshark names, or the usual one."""
    try:
        said = subprocess.run(
            ["tshark", "-G", "folders"], capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    named = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith(FOLDER_LINE)]
    return Path(named[0]) if named else Path.home() / PLUGINS_FOLDER
