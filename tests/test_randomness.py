"""No test, script or measurement draws what a seed does not decide: what fails once fails again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ("tests", "scripts", "benchmarks", "src/fairway/demo")
DENIED = ("os.urandom", "os.getrandom", "secrets", "uuid.uuid1", "uuid.uuid4")
SEEDED = ("random.Random", "numpy.random.default_rng", "numpy.random.Generator", "numpy.random.SeedSequence")
"""All else in these two modules draws from a state that the whole process shares, or from the system."""


def unseeded(source: str) -> Iterator[str]:
    """Yield every use of a random source that has no seed, with its line."""
    tree = ast.parse(source)
    names = dict(imported(tree))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            used = dotted(node, names)
            if within(used, *DENIED) or (within(used, "random", "numpy.random") and used not in SEEDED):
                yield f"{node.lineno}: {used}"
        elif isinstance(node, ast.Call) and dotted(node.func, names) in SEEDED and not has_seed(node):
            yield f"{node.lineno}: {ast.unparse(node)}"


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of what is used, empty for what no import brought."""
    if isinstance(node, ast.Attribute):
        left = dotted(node.value, names)
        return f"{left}.{node.attr}" if left else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def within(used: str, *modules: str) -> bool:
    return any(used == module or used.startswith(f"{module}.") for module in modules)


def has_seed(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is None)


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_everything_that_is_drawn_is_decided_by_a_seed() -> None:
    found = [f"{path.relative_to(ROOT)}:{use}" for path in sources() for use in unseeded(path.read_text())]
    assert found == []


def test_every_folder_has_something_to_check() -> None:
    assert all(any(path.is_relative_to(ROOT / folder) for path in sources()) for folder in FOLDERS)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.urandom(3)",
        "from os import urandom as draw\ndraw(3)",
        "import secrets\nsecrets.token_bytes()",
        "import uuid\nnames = [uuid.uuid4() for _ in range(3)]",
        "from uuid import uuid1\nuuid1()",
        "import random\nrandom.shuffle([])",
        "from random import randint\nf(draw=randint)",
        "import random\nrandom.Random()",
        "from random import Random\nRandom(None)",
        "from random import SystemRandom\nSystemRandom(1)",
        "import numpy as np\nnp.random.default_rng()",
        "from numpy.random import default_rng\ndefault_rng(seed=None)",
        "import numpy\nnumpy.random.normal()",
        "def f():\n    import random\n    return random.random()",
    ],
)
def test_what_draws_without_a_seed_is_found(source: str) -> None:
    assert len([*unseeded(source)]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from random import Random\nrandom = Random(3)\nrandom.shuffle([])",
        "import random\ndef f(seed: int, other: random.Random):\n    return random.Random(seed)",
        "import numpy as np\nnp.random.default_rng(7).normal()",
        "from uuid import UUID\nUUID(int=3)",
        "def f(random):\n    return random.random()",
        "word = 'os.urandom'",
    ],
)
def test_what_a_seed_decides_passes(source: str) -> None:
    assert [*unseeded(source)] == []
