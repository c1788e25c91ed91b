"""Conditions on a few cheap columns, evaluated before the other columns are built.

They are an option of the source, not filters that Spark pushes down: Spark 4.3 keeps the pushed filters of a Python
source in the data frame. A second query of the same frame, or the other half of a union, silently gets the rows of the
first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.errors import BadOption
from fairway.core.tables import PROTOCOLS
from fairway.lake.captures.rows import SCHEMA, Batch, Mask, column, plain

COLUMNS = (
    *("at", "at_ns", "source", "source_port", "destination", "destination_port", "flow", "point", "undecoded"),
    *(f"{protocol}_kind" for protocol in PROTOCOLS),
)
"""What people filter by: time, address, port, and what a datagram is if it is of a protocol."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "in": lambda values, chosen: pc.is_in(values, value_set=chosen),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, how it is compared, and with what; a row whose column is null does not meet it."""

    column: str
    operator: str
    value: Any


def parsed_conditions(text: str) -> tuple[Condition, ...]:
    """Reads a JSON array of `[column, operator, value]`; a time is text such as `2026-01-31T12:00:00Z`."""
    try:
        return tuple(_checked(*entry) for entry in json.loads(text))
    except (TypeError, ValueError, pa.ArrowException) as error:
        if isinstance(error, BadOption):
            raise
        rule = 'it must be a JSON array such as [["source_port", "=", 9000], ["at", ">=", "2026-01-31T12:00:00Z"]]'
        raise BadOption(f"where is {text!r}; {rule}") from None


def _checked(name: str, operator: str, value: Any) -> Condition:
    if name not in COLUMNS:
        raise BadOption(f"where cannot look at {name!r}; it can at {', '.join(COLUMNS)}")
    if operator not in _OPERATORS:
        raise BadOption(f"where has no operator {operator!r}; it has {' '.join(_OPERATORS)}")
    condition = Condition(name, operator, value)
    _value(condition)
    return condition


def _value(condition: Condition) -> Any:
    kind = SCHEMA.field(condition.column).type
    many = condition.value if condition.operator == "in" else [condition.value]
    values = pa.array([_time(value) if condition.column == "at" else value for value in many], type=kind)
    return values if condition.operator == "in" else values[0]


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def kept(batch: Batch, conditions: Sequence[Condition]) -> Mask:
    """Tells which rows meet all conditions."""
    mask: Mask = np.ones(len(batch), dtype=np.bool_)
    for condition in conditions:
        values = plain(column(batch, condition.column))
        met = pc.and_(values.is_valid(), _OPERATORS[condition.operator](values, _value(condition)))
        mask &= pc.fill_null(met, False).to_numpy(zero_copy_only=False)
    return mask
