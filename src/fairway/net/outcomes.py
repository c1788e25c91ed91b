"""How a send or a connect ends for the one who awaits it: it returns, or one of two kinds of error is raised.

FairwayError
├── OutcomeRefused              the peer or a rule said no
│   ├── DeliveryRefused         to a message
│   └── ConnectRefused          to a conversation
├── OutcomeUnknown              no answer in time
│   ├── DeliveryUnknown         the message may have arrived
│   └── ConnectUnknown          nobody may be there
└── ConversationClosed          there is nothing more to receive, and no way to send
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.core.errors import FairwayError


@dataclass(slots=True)
class Tally:
    """What became of the messages of one `send_many`."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        return f"{self.acknowledged} acknowledged, {self.refused} refused, {self.unknown} unknown"


class OutcomeRefused(FairwayError):
    """The peer, or a rule, said no."""


class OutcomeUnknown(FairwayError):
    """No answer came in time; what was sent may have arrived."""


class DeliveryRefused(OutcomeRefused):
    """The message was refused. `tally` tells of the others when it was one of a `send_many`."""

    def __init__(self, reason: str, tally: Tally | None = None) -> None:
        super().__init__(reason)
        self.tally = tally


class DeliveryUnknown(OutcomeUnknown):
    """The message was not acknowledged in time. `tally` tells of the others when it was one of a `send_many`."""

    def __init__(self, reason: str, tally: Tally | None = None) -> None:
        super().__init__(reason)
        self.tally = tally


class ConnectRefused(OutcomeRefused):
    """The peer or a rule said no to the conversation."""


class ConnectUnknown(OutcomeUnknown):
    """The peer did not answer in time, or nobody has its port: the message that says so may be anyone's."""


class ConversationClosed(FairwayError):
    """The conversation, or the whole endpoint, is closed."""
