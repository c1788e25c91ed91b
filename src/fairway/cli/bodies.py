"""Bodies from the command line: read from where they are, and refused before anybody is called if too large to go."""

from __future__ import annotations

import os
from pathlib import Path

from fairway.core.errors import BadMessage
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Options
from fairway.dtls import PLAINTEXT_BYTES_MAX
from fairway.net.urls import DTLS_SETTINGS, build_options, parse
from fairway.protocols import options_class, protocol


class Way:
    """Where messages go, and what can go there."""

    def __init__(self, url: str) -> None:
        target = parse(url)
        self.url = url
        self.protocol = protocol(target.protocol)
        self._secure = target.secure
        others = ("io", *DTLS_SETTINGS) if target.secure else ("io",)
        settings = {name: value for name, value in target.settings.items() if name not in others}
        self.options: Options = build_options(options_class(target.protocol), settings)

    @property
    def body_bytes_max(self) -> int:
        """The largest body, as far as it is known before the peer is."""
        if self.protocol.single_datagram:
            most = UDP_PAYLOAD_BYTES_MAX if self._piggyback else self.protocol.message_bytes_max
            return most - UDP_PAYLOAD_BYTES_MAX + PLAINTEXT_BYTES_MAX if self._secure else most
        return int(getattr(self.options, "message_bytes_max", self.protocol.message_bytes_max))

    @property
    def _piggyback(self) -> bool:
        return getattr(self.options, "layout", "") == "piggyback"

    def check(self, size: int) -> None:
        """Raise `BadMessage` for a size of body that cannot be carried."""
        if size > self.body_bytes_max:
            remedy = "" if self.protocol.single_datagram else "; the option message_bytes_max allows more"
            raise BadMessage(
                f"a message of {size:,} bytes is too large: {self.protocol.name} carries up to "
                f"{self.body_bytes_max:,} here{remedy}"
            )
        if size == 0 and self._piggyback:
            raise BadMessage("the piggyback layout of mrp carries no empty message; ?layout=stamped does")


def of_file(path: Path, way: Way) -> bytes:
    """Read a file, unless it is larger than what can be sent."""
    with path.open("rb") as file:
        way.check(max(1, os.fstat(file.fileno()).st_size))
        body = file.read(way.body_bytes_max + 1)
    way.check(len(body))
    return body
