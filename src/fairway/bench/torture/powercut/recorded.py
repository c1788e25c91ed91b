"""Runs `fairway` with a journal that carries its log over after a few pages, so that a short recording has many of
these moments; everything else is as always."""

from __future__ import annotations

import sys

from fairway.cli import main
from fairway.gateway import journal

CHECKPOINT_PAGES = 48

if __name__ == "__main__":
    journal.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    sys.exit(main())
