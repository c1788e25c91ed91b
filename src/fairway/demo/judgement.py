"""The ledger of a fleet beside the table: what was promised, and what is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairway.demo.fleet import ACKNOWLEDGED, REFUSED, Ledger, key_of
from fairway.store.delta import Delta
from fairway.store.places import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the comparison found. `missing`, `double` and `foreign` must be 0."""

    sent: int
    acknowledged: int
    in_table: int
    missing: int
    """Acknowledged and not in the table."""
    double: int
    """In the table more than once."""
    foreign: int
    """In the table, but never sent, refused, or with another body or device than was sent."""
    devices: dict[str, int]
    """Rows by the name in the certificate of who sent them."""

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return not (self.missing or self.double or self.foreign)

    def __str__(self) -> str:
        return (
            f"{self.sent:,} sent, {self.acknowledged:,} acknowledged, {self.in_table:,} in the table; "
            f"{self.missing:,} missing, {self.double:,} double, {self.foreign:,} foreign"
        )


def judge(ledger: Ledger, table: Path | str) -> Judgement:
    """Reads the bodies of `tables/messages` and holds them against the ledger."""
    rows = _rows(table)
    found = Counter(key_of(body, device) for body, device in rows)
    acknowledged = [key for key, outcome in ledger.outcomes.items() if outcome == ACKNOWLEDGED]
    allowed = {key for key, outcome in ledger.outcomes.items() if outcome != REFUSED}
    return Judgement(
        sent=len(ledger.outcomes),
        acknowledged=len(acknowledged),
        in_table=found.total(),
        missing=sum(1 for key in acknowledged if key not in found),
        double=sum(count - 1 for count in found.values()),
        foreign=sum(1 for key in found if key not in allowed),
        devices=dict(Counter(device or "" for _, device in rows)),
    )


def _rows(table: Path | str) -> list[tuple[bytes, str | None]]:
    import pyarrow as pa

    messages = Delta(place_of(table))
    wanted = pa.schema([("body", pa.binary()), ("device", pa.string())])
    batches = messages.rows(wanted) if messages.exists() else ()
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
