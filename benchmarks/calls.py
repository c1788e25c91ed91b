"""The way of one datagram: every call of a function of Fairway from the socket to the application, and back.

python -m benchmarks.calls          one important message of udpc over the loopback device, both sides in this process

Counted is from when the receiving socket is readable to its acknowledgement in the socket and the message in the hands
of the application, and from there to the future of the sender. Calls of C functions do not count.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import fairway

SOURCE = str(Path(fairway.__file__).parent)
WARM_UP = 32
"""Messages before the one that is measured: by then both sides read a single datagram by the shortest way."""


class Called(NamedTuple):
    """One call."""

    file: str
    function: str


async def way_of_one_message(protocol: str = "udpc") -> list[Called]:
    """Return the calls between the sender's socket and the sender's future, in order."""
    found: list[Called] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE):
            found.append(Called(name[len(SOURCE) + 1 :], frame.f_code.co_qualname))

    async with fairway.listen(f"{protocol}://127.0.0.1:0") as listener, fairway.connect(listener.url) as connection:
        for _ in range(WARM_UP):
            await connection.send(b"warm")
            await listener.receive()
        receiving = asyncio.ensure_future(listener.receive())
        await asyncio.sleep(0)
        sending = connection.send_nowait(b"once")
        sys.setprofile(profile)
        try:
            await asyncio.gather(sending, receiving)
        finally:
            sys.setprofile(None)
    return found


def main() -> None:
    found = asyncio.run(way_of_one_message(*sys.argv[1:2]))
    begins = [at for at, one in enumerate(found) if one.function == "Driver.readable"]
    back = begins[1]
    for title, calls in (("to the application, and its acknowledgement out", found[:back]), ("back", found[back:])):
        for number, one in enumerate(calls, 1):
            print(f"{number:3}  {one.file:32} {one.function}")
        print(f"{title}: {len(calls)} calls in {len({one.file for one in calls})} files\n")


if __name__ == "__main__":
    main()
