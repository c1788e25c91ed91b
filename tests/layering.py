"""The rules of the packages, read off a module's syntax tree: who may use whom, and what a pure package never does.

python -m tests.layering        prints every breach under src/fairway
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "fairway"

MAY_USE = {
    "core": (),
    "protocols": ("core",),
    "capture": ("protocols",),
    "sim": ("protocols", "capture"),
    "dtls": ("core",),
    "net": ("protocols", "capture", "dtls"),
    "store": ("core",),
    "gateway": ("net", "store"),
    "lake": ("capture", "sim", "store"),
    "report": ("store",),
    "demo": ("gateway", "lake", "report"),
    "pure": ("core",),
    "cli": ("demo", "pure"),
    "": ("cli",),
}
"""Each package with those it may use directly; what they may use, it may use too. `fairway` itself is ""."""

PURE_PACKAGES = ("core", "protocols", "capture", "sim")

PURE_MODULES = frozenset(
    """__future__ abc array base64 binascii bisect collections contextlib copy dataclasses enum fractions functools
    hashlib heapq ipaddress itertools json math numbers operator re string struct types typing zlib""".split()
)
"""An allow-list, because whoever adds a module should have to say here that it neither waits nor chooses."""

PURE_EXCEPTIONS = {
    "fairway.protocols": ("importlib",),
    "fairway.protocols.rup.assembly": ("ctypes",),
    "fairway.capture.columns.compiled": ("numba",),
}
"""The registry loads a protocol when it is asked for; it names modules of its own package only. An assembly asks the
interpreter for memory, and nobody else for anything. A compiled loop is the same function of the same bytes."""

PURE_BUILTINS_DENIED = ("open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint", "hash")
"""`hash` differs from process to process."""

ONLY_IN = {
    "pyspark": ("lake",),
    "numba": ("capture",),
    "OpenSSL": ("dtls",),
    "cryptography": ("dtls",),
    "py4j": ("lake",),
    "pandas": ("lake",),
    "pyarrow": ("store", "lake", "gateway", "report", "demo"),
    "deltalake": ("store", "lake"),
    "obstore": ("store",),
    "socket": ("net", "demo"),
    "socketserver": ("net",),
    "select": ("net", "demo"),
    "selectors": ("net", "demo"),
    "ssl": ("net",),
    "asyncio": ("net", "gateway", "demo", "cli"),
    "multiprocessing": ("gateway", "cli"),
    "subprocess": ("gateway", "demo", "cli"),
    "sqlite3": ("gateway", "lake", "cli"),
}
OUTSIDE = ("benchmarks", "scripts", "tests")
"""What is in a checkout and not in the installed package."""

RANDOMNESS = ("random", "numpy.random")
"""No package draws from these: a `RandomSource` is passed in."""

PROTOCOL_MODULES_OPEN = ("", "wire", "columns", "machine", "options")
"""What a protocol's folder offers to other packages; its nouns are its own."""

SET_METHODS = ("union", "intersection", "difference", "symmetric_difference")
ORDER_FORGETTERS = ("min", "max", "sum", "any", "all", "sorted", "set", "frozenset")
"""Calls whose result is the same in whatever order they are given things."""
ORDER_KEEPERS = ("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "reversed", "dict", "deque")
"""Calls whose result shows the order of what they are given."""


class Breach(NamedTuple):
    """One line where a rule is broken."""

    rule: str
    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.rule}: {self.what}"


class Imported(NamedTuple):
    """One imported module, with the name taken from it, if any."""

    module: str
    name: str | None
    node: ast.stmt
    lazy: bool
    """Inside a function, or for the type checker alone."""


def package_of(module: str) -> str:
    """Return the package of a module of Fairway."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


def closure(package: str) -> frozenset[str]:
    """Return all packages that a package may use, itself among them."""
    found = {package}
    for used in MAY_USE[package]:
        found |= closure(used)
    return frozenset(found)


def breaches(module: str, source: str) -> list[Breach]:
    """Return every breach of a rule in one module, in the order of its lines."""
    tree = ast.parse(source)
    found = [*_import_breaches(module, tree)]
    if package_of(module) in PURE_PACKAGES:
        found += [*_pure_breaches(module, tree), *_set_breaches(module, tree)]
    return sorted(found, key=lambda breach: breach.line)


def all_breaches() -> list[Breach]:
    """Return every breach in the source tree."""
    return [breach for path in sources() for breach in breaches(module_name(path), path.read_text())]


def sources() -> list[Path]:
    """List all modules of Fairway."""
    return sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the dotted name of a source file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.Module) -> Iterator[Imported]:
    """Return every import of a module, those inside functions too."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, lazy = pending.pop()
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, None, node, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (Imported(module, alias.name, node, lazy) for alias in node.names)
        deeper = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _for_type_checkers(node)
        pending.extend((child, deeper) for child in ast.iter_child_nodes(node))


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _import_breaches(module: str, tree: ast.Module) -> Iterator[Breach]:
    package = package_of(module)
    for imported in imports(tree):
        dotted = f"{imported.module}.{imported.name}" if imported.name else imported.module
        for rule, broken in (
            ("outside", any(_within(imported.module, name) for name in OUTSIDE)),
            ("relative import", imported.module.startswith(".")),
            ("package", _is_fairway(imported.module) and not _may_import(module, imported)),
            ("internals", _is_fairway(imported.module) and _reaches_in(module, imported)),
            ("only in", any(_within(dotted, name) and package not in packages for name, packages in ONLY_IN.items())),
            ("randomness", any(_within(dotted, name) for name in RANDOMNESS)),
            ("pure import", package in PURE_PACKAGES and not _pure_import(module, imported.module)),
            ("eager numpy", not imported.lazy and not _may_load_numpy(module) and _loads_numpy(imported)),
        ):
            if broken:
                yield Breach(rule, module, imported.node.lineno, f"imports {dotted}")


def _is_fairway(module: str) -> bool:
    return _within(module, "fairway")


def _within(dotted: str, package: str) -> bool:
    return dotted == package or dotted.startswith(package + ".")


def _may_import(module: str, imported: Imported) -> bool:
    """`from fairway import core` names a package just as `import fairway.core` does."""
    package = package_of(imported.module)
    if imported.module == "fairway":
        package = imported.name if imported.name in MAY_USE else ""
        if package == "":
            return True
    return package in closure(package_of(module))


def _reaches_in(module: str, imported: Imported) -> bool:
    private = [part for part in (*imported.module.split("."), imported.name or "") if part.startswith("_")]
    if any(not part.startswith("__") for part in private) and imported.module != module:
        return True
    parts = imported.module.split(".")
    if parts[:2] != ["fairway", "protocols"] or not _is_protocol(parts):
        return False
    folder = ".".join(parts[:3])
    if _within(module, folder):
        return False
    if package_of(module) == "protocols" and len(module.split(".")) > 3:
        return True
    return (parts[3] if len(parts) > 3 else "") not in PROTOCOL_MODULES_OPEN


def _is_protocol(parts: list[str]) -> bool:
    return len(parts) > 2 and (SOURCE / "protocols" / parts[2]).is_dir()


def _pure_import(module: str, imported: str) -> bool:
    allowed = PURE_MODULES.union(PURE_EXCEPTIONS.get(module, ()))
    return imported.partition(".")[0] in allowed or _is_fairway(imported) or imported in ("numpy", "numpy.typing")


def _may_load_numpy(module: str) -> bool:
    return module.endswith(".columns") or package_of(module) in ("capture", "lake", "report")


def _loads_numpy(imported: Imported) -> bool:
    dotted = f"{imported.module}.{imported.name}"
    columns = _is_fairway(imported.module) and (imported.module.endswith(".columns") or dotted.endswith(".columns"))
    return columns or _within(imported.module, "numpy")


def _pure_breaches(module: str, tree: ast.Module) -> Iterator[Breach]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in PURE_BUILTINS_DENIED and isinstance(node.ctx, ast.Load):
            yield Breach("pure builtin", module, node.lineno, f"uses {node.id}")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random"):
            yield Breach("randomness", module, node.lineno, "uses numpy.random")
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Breach("pure wait", module, node.lineno, "waits")


def _set_breaches(module: str, tree: ast.Module) -> Iterator[Breach]:
    """A set is for asking, not for walking: its order is that of its hashes."""
    known = _known_sets(tree)
    harmless = [walked for node in ast.walk(tree) for walked in _walked_harmlessly(node)]
    for node in ast.walk(tree):
        for walked in _walked(node):
            if walked not in harmless and _is_set(walked, known):
                yield Breach("set order", module, walked.lineno, f"walks over {ast.unparse(walked)}")


def _walked_harmlessly(node: ast.AST) -> Iterator[ast.expr]:
    """Return what is walked over inside a call that forgets the order, and the only element of a set of one."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDER_FORGETTERS:
            for argument in arguments:
                for child in (argument, *ast.iter_child_nodes(argument)):
                    yield from _walked(child)
        case ast.IfExp(test=test, body=ast.Call(func=ast.Attribute(value=popped)) as body):
            if ast.unparse(test) == f"len({ast.unparse(popped)}) == 1":
                yield from _walked(body)


def _known_sets(tree: ast.Module) -> frozenset[str]:
    """Return the names and `self` attributes that are annotated as sets or assigned one, anywhere in the module."""
    known = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation and _says_set(node.annotation):
            known.add(node.arg if isinstance(node, ast.arg) else _last_name(node.target))
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            known.update(_last_name(target) for target in node.targets)
    return frozenset(known)


def _says_set(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).strip("'\"")
    return text.split("[")[0].lower() in ("set", "frozenset")


def _last_name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def _walked(node: ast.AST) -> Iterator[ast.expr]:
    """Return the expressions whose order a node shows."""
    match node:
        case ast.For(iter=walked) | ast.comprehension(iter=walked) | ast.Starred(value=walked):
            yield walked
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDER_KEEPERS:
            yield from arguments
        case ast.Call(func=ast.Attribute(attr="join" | "extend"), args=arguments):
            yield from arguments
        case ast.Call(func=ast.Attribute(value=popped, attr="pop"), args=[], keywords=[]):
            yield popped


def _is_set(node: ast.expr, known: frozenset[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in SET_METHODS
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, known) or _is_set(right, known)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in known
    return False


if __name__ == "__main__":
    for found in all_breaches():
        print(found)
