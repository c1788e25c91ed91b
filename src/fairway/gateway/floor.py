"""Where a journal may begin: above every offset that was ever sealed, whatever became of the journal before it.

An offset that is given twice loses a message: the stream has landed the first and takes the second for it. So three
witnesses are asked, each of which may be gone: the segments in `landing/` (removed some time after they landed), the
note beside the journal (not there for a journal of an earlier version), and the checkpoint of the stream.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from fairway.core import layout
from fairway.gateway.place import Place

_log = logging.getLogger("fairway.gateway")


def floor(place: Place) -> int:
    """Gives the lowest offset that a new message of this gateway may have."""
    landed = place.landed()
    return max(landed[-1][1] + 1 if landed else 0, _noted(place), _streamed(place))


def _noted(place: Place) -> int:
    try:
        return int(place.sealed_to.read_text()) + 1
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read (%s); the next segment writes it anew", place.sealed_to, error)
        return 0


def _streamed(place: Place) -> int:
    """Gives how far the stream is, or will be with its next batch; the newest note may be half-written."""
    try:
        batches = sorted((int(name) for name in os.listdir(place.streamed) if name.isdigit()), reverse=True)
    except OSError:
        return 0
    for batch in batches:
        with suppress(OSError, ValueError, IndexError, AttributeError):
            return layout.stream_positions((place.streamed / str(batch)).read_text()).get(place.name, 0)
    return 0
