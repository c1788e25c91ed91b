"""Finds programs that Fairway needs beside Python, or installs Debian's package of them, or says in one sentence how.

python scripts/require.py java tshark chromium
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

JAVA_VERSION_MIN = 17
LOG = Path(__file__).parent.parent / "build" / "require.log"
"""What apt-get says goes here."""


class Program(NamedTuple):
    """What is needed, how it is found, and the Debian package that brings it."""

    needed: str
    find: Callable[[], str | None]
    package: str


def find_java() -> str | None:
    """Return the Java that Spark would start, the one in JAVA_HOME before the one on PATH, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return java if java and java_version(java) >= JAVA_VERSION_MIN else None


def java_version(java: str) -> int:
    """Return the major version, 0 when there is none to be found; `1.8` is how version 8 calls itself."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def find_mbedtls() -> str | None:
    """Return the header by which programs are built against it."""
    header = Path("/usr/include/mbedtls/ssl.h")
    return str(header) if header.exists() else None


PROGRAMS = {
    "java": Program(f"Java {JAVA_VERSION_MIN} or newer", find_java, "openjdk-17-jre-headless"),
    "tshark": Program("tshark", lambda: shutil.which("tshark"), "tshark"),
    "strace": Program("strace", lambda: shutil.which("strace"), "strace"),
    "cc": Program("a C compiler", lambda: shutil.which("cc"), "gcc"),
    "gnutls-cli": Program("gnutls-cli", lambda: shutil.which("gnutls-cli"), "gnutls-bin"),
    "mbedtls": Program("mbed TLS", find_mbedtls, "libmbedtls-dev"),
    "chromium": Program("Chromium", lambda: shutil.which("chromium"), "chromium"),
}


def require(name: str) -> bool:
    """Find or install one program; say what was found, or what to do."""
    program = PROGRAMS[name]
    found = program.find() or (install(program) and program.find())
    if not found:
        hint = f"install it (Debian: apt-get install {program.package})"
        where = " and point JAVA_HOME at it" if name == "java" else ""
        print(f"Fairway needs {program.needed}: {hint}{where}, then try again.", file=sys.stderr)
        return False
    print(f"{program.needed}: {found}")
    return True


def install(program: Program) -> bool:
    """Install a Debian package where that is possible without asking."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print(f"installing {program.package}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    update = ["apt-get", "update"]
    fetch = ["apt-get", "install", "--no-install-recommends", "-y", program.package]
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        # Tests that run beside each other may want the same program, and apt-get refuses to work twice at a time.
        fcntl.flock(log, fcntl.LOCK_EX)
        if program.find():
            return True
        # An update may fail for a source that the package does not need; the installation decides.
        subprocess.run(update, env=environment, stdout=log, stderr=log, check=False)
        done = subprocess.run(fetch, env=environment, stdout=log, stderr=log, check=False).returncode == 0
    if not done:
        print(f"failed: {LOG} says why", file=sys.stderr)
    return done


def main(names: list[str]) -> int:
    """Look for all programs before giving up, so that one run names all that are missing."""
    missing = [name for name in names if not require(name)]
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
