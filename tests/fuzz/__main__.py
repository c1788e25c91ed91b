"""Runs the fuzzers: `make fuzz`."""

from __future__ import annotations

import sys

from tests.fuzz.fuzzing import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
