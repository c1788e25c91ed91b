"""Runs `fairway` with a journal that carries its log over after a few pages, so that a short recording has many of
these moments; everything else is as always."""

from __future__ import annotations

import runpy

from fairway.gateway import journal

CHECKPOINT_PAGES = 48

if __name__ == "__main__":
    journal.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    runpy.run_module("fairway", run_name="__main__")
