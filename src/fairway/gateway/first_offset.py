"""Where a journal may begin: above every offset that was ever sealed, whatever became of the journal before it.

An offset that is given twice loses a message: the stream has landed the first and takes the second for it. So three
witnesses are asked, each of which may be gone: the segments in `landing/` (removed some time after they landed), the
note beside the journal (not there for a journal of an earlier version), and the table, which knows what it holds.
"""

from __future__ import annotations

import logging

from fairway.core.errors import FairwayError
from fairway.core.layout import progress
from fairway.gateway.home import Home

_log = logging.getLogger("fairway.gateway")


def first_offset(home: Home) -> int:
    """Return the lowest offset that a new message of this gateway may have."""
    landed = home.landed()
    return max(landed[-1][1] + 1 if landed else 0, _noted(home), _in_table(home))


def _noted(home: Home) -> int:
    try:
        return int(home.sealed_to.read_text()) + 1
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read (%s); the next segment writes it anew", home.sealed_to, error)
        return 0


def _in_table(home: Home) -> int:
    """Return how much of this gateway the table holds."""
    if not home.messages.exists():
        return 0
    try:
        return home.messages.position(home.messages.open(), progress(home.name))
    except (FairwayError, OSError) as error:
        _log.warning("how far the stream is cannot be read: %s", error)
        return 0
