"""A grid in TOML to its cells. Every value may be a list; a sweep is the product of all its lists.

    [[sweep]]
    protocol = ["udpc", "mrp"]
    seeds = 20                          # 1 to 20, or a list
    options = { controller = "newreno" }   # for every protocol of the sweep
    options.mrp = { layout = ["stamped", "piggyback"] }
    link = { loss = [0, 0.01, 0.05], burst_length = [1, 8], delay_ms = [5, 50] }
    load = { messages = 200, size = 200, interval_ms = 5 }

Whatever is wrong is said in one sentence before anything starts; the cells of a grid are counted before they are made.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any, get_type_hints

from fairway.core.errors import BadOption, FairwayError
from fairway.lake.lab.cells import Cell, Link, Traffic
from fairway.protocols import NAMES, options_class

CELLS_MAX = 1_000_000
NUMBER_MAX = (1 << 63) - 1
SEEDS_MAX = 100_000
_KEYS = ("protocol", "seeds", "options", "link", "load")

Axis = tuple[Any, ...]


class BadGrid(FairwayError):
    """A grid cannot be run; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One product of lists."""

    protocols: tuple[str, ...]
    seeds: tuple[int, ...]
    options: Mapping[str, Mapping[str, Axis]]
    """By protocol, then by option."""
    link: Mapping[str, Axis]
    load: Mapping[str, Axis]

    def count(self) -> int:
        """Count the cells without making them."""
        rest = len(self.seeds) * prod(map(len, self.link.values())) * prod(map(len, self.load.values()))
        return rest * sum(prod(map(len, self.options[name].values())) for name in self.protocols)

    def cells(self) -> Iterator[Cell]:
        """Make the cells, the seeds going fastest."""
        for name in self.protocols:
            for options in _choices(self.options[name]):
                for link in _choices(self.link):
                    for load in _choices(self.load):
                        for seed in self.seeds:
                            yield Cell(
                                protocol=name, options=options, link=Link(**link), load=Traffic(**load), seed=seed
                            )


def parse(text: str, name: str = "the grid") -> list[Cell]:
    """Return the cells of a grid, each once, in the grid's order; raise `BadGrid`."""
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        # Not only what is no TOML: a whole number of thousands of digits too.
        raise BadGrid(f"{name} is not TOML: {error}.") from error
    _known(table, ("sweep",), name)
    found = table.get("sweep")
    if not isinstance(found, list) or not found:
        raise BadGrid(f"{name} has no [[sweep]]; each one is a product of lists.")
    sweeps = [_sweep(one, f"{name}, sweep {number}") for number, one in enumerate(found, 1)]
    count = sum(sweep.count() for sweep in sweeps)
    if count > CELLS_MAX:
        raise BadGrid(f"{name} has {count:,} cells; at most {CELLS_MAX:,} are run in one sweep.")
    cells = {cell.key: cell for sweep in sweeps for cell in sweep.cells()}
    _check(cells.values(), name)
    return list(cells.values())


def _check(cells: Any, name: str) -> None:
    """Try each combination once, whatever its seed: a bad one fails here and not in an hour."""
    tried: set[tuple[object, ...]] = set()
    for cell in cells:
        shape = (cell.protocol, tuple(cell.options.items()), cell.link, cell.load)
        if shape in tried:
            continue
        tried.add(shape)
        try:
            cell.configuration()
        except BadOption as error:
            raise BadGrid(f"{name}: {error} ({cell.protocol}).") from error


def _sweep(table: object, where: str) -> Sweep:
    if not isinstance(table, dict):
        raise BadGrid(f"{where} is not a table.")
    _known(table, _KEYS, where)
    protocols = _axis(table.get("protocol", ()), str, f"{where}: protocol")
    for name in protocols:
        if name not in NAMES:
            raise BadGrid(f"{where}: protocol {name!r} is unknown; the protocols are {', '.join(NAMES)}.")
    return Sweep(
        protocols=protocols,
        seeds=_seeds(table.get("seeds", 1), where),
        options=_options(table.get("options", {}), protocols, where),
        link=_axes(table.get("link", {}), Link, f"{where}: link"),
        load=_axes(table.get("load", {}), Traffic, f"{where}: load"),
    )


def _seeds(found: object, where: str) -> tuple[int, ...]:
    if isinstance(found, int) and not isinstance(found, bool):
        if not 1 <= found <= SEEDS_MAX:
            raise BadGrid(f"{where}: seeds is {found}; it must be from 1 to {SEEDS_MAX}, or a list of seeds.")
        return tuple(range(1, found + 1))
    return _axis(found, int, f"{where}: seeds")


def _options(found: object, protocols: Axis, where: str) -> dict[str, dict[str, Axis]]:
    """Return the options of each protocol: those for all of the sweep, and those under its own name."""
    if not isinstance(found, dict):
        raise BadGrid(f"{where}: options is not a table.")
    for name, own in found.items():
        if name in NAMES and name not in protocols:
            raise BadGrid(f"{where}: options.{name} is for a protocol that this sweep does not run.")
        if name in NAMES and not isinstance(own, dict):
            raise BadGrid(f"{where}: options.{name} is not a table of that protocol's options.")
    shared = {name: value for name, value in found.items() if name not in NAMES}
    return {
        name: _axes({**shared, **found.get(name, {})}, options_class(name), f"{where}: options") for name in protocols
    }


def _axes(found: object, kind: type, where: str) -> dict[str, Axis]:
    """Check a table against the fields of a class, and make every value a tuple."""
    if not isinstance(found, dict):
        raise BadGrid(f"{where} is not a table.")
    hints = get_type_hints(kind)
    _known(found, [field.name for field in fields(kind)], where)
    return {name: _axis(value, hints[name], f"{where}.{name}") for name, value in found.items()}


def _axis(found: object, kind: type, where: str) -> Axis:
    values = tuple(found) if isinstance(found, list | tuple) else (found,)
    if not values:
        raise BadGrid(f"{where} is an empty list; nothing would be run.")
    for value in values:
        if not _fits(value, kind):
            raise BadGrid(f"{where} is {value!r}; it must be {_NAMES[kind]}.")
        if isinstance(value, int) and not -NUMBER_MAX <= value <= NUMBER_MAX:
            raise BadGrid(f"{where} is larger than any number that a table holds.")
    return tuple(float(value) for value in values) if kind is float else values


def _fits(value: object, kind: type) -> bool:
    """Return whether TOML gave what is wanted; a truth value is no number, a whole number is one."""
    if kind not in _NAMES:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _known(table: Mapping[str, object], known: Any, where: str) -> None:
    for key in table:
        if key not in known:
            raise BadGrid(f"{where} has the unknown key {key!r}; known are {', '.join(known)}.")


def _choices(axes: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
