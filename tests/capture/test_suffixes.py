"""The CRC of a message's end follows from that of the whole and that of its beginning."""

from __future__ import annotations

from random import Random
from zlib import crc32

import numpy as np

from fairway.capture.columns.suffixes import crcs_of_rest


def test_the_crc_of_the_rest_is_that_of_its_bytes() -> None:
    random = Random(4)
    messages = [random.randbytes(random.choice((42, 64, 1_400, 65_507))) for _ in range(200)]
    headers = [random.randrange(43) for _ in messages]
    pairs = list(zip(messages, headers, strict=True))
    found = crcs_of_rest(
        np.array([crc32(message) for message in messages]),
        np.array([crc32(message[:header]) for message, header in pairs]),
        np.array([len(message) - header for message, header in pairs]),
    )
    assert found.tolist() == [crc32(message[header:]) for message, header in pairs]
