"""Calls go down and events come up: no layer knows the one above it, and no method is replaced at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import layering

LAYERS = ("layers", "link", "driver", "endpoint", "conversations", "listener", "server", "opening")
"""From below; `connection`, `inbox` and `messages` belong to `conversations`."""
SAME = dict.fromkeys(("connection", "inbox", "messages"), "conversations")


def trees(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((layering.SOURCE / package).rglob("*.py")):
        yield path.stem, ast.parse(path.read_text())


def level(module: str) -> int:
    name = module.removeprefix("fairway.net.").partition(".")[0]
    return LAYERS.index(SAME.get(name, name)) if SAME.get(name, name) in LAYERS else -1


def test_no_layer_imports_the_one_above_not_even_for_its_types() -> None:
    upwards = [
        f"{name} imports {imported.module}"
        for name, tree in trees("net")
        for imported in layering.imports(tree)
        if imported.module.startswith("fairway.net") and level(imported.module) > level(name) >= 0
    ]
    assert upwards == []


def replaced_methods(tree: ast.Module) -> list[str]:
    """Return what is assigned to an object although its class defines it as a method."""
    found = []
    for one in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        methods = {node.name for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        targets = (
            node for node in ast.walk(one) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )
        found += [f"{one.name}.{target.attr}" for target in targets if target.attr in methods]
    return found


@pytest.mark.parametrize("package", ["net", "gateway"])
def test_no_method_is_replaced_at_run_time(package: str) -> None:
    assert [name for _, tree in trees(package) for name in replaced_methods(tree)] == []


def test_a_replaced_method_is_found() -> None:
    source = "class A:\n    def __init__(self, b):\n        self.send = b.send\n    def send(self): ..."
    assert replaced_methods(ast.parse(source)) == ["A.send"]
