"""A large message put together in its final buffer.

`bytes` cannot be written to, so parts would be kept apart and joined at the end: every byte is moved once more, into
memory that the processor has not seen. CPython itself makes a `bytes` object empty and fills it while nobody else
knows it. So does this module: it asks the interpreter for an object without content and for a view to write through,
and the view is gone before the object is handed out. Where the interpreter is another one there is no assembly, and
parts are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

_WRITABLE = 0x200
"""`PyBUF_WRITE`."""


class _Interpreter(NamedTuple):
    """What CPython's own code uses."""

    empty: Callable[[None, int], bytes]
    address: Callable[[bytes], int]
    view: Callable[[int, int, int], memoryview]


@cache
def _interpreter() -> _Interpreter | None:
    """Find the interpreter's functions; None where it has none."""
    try:
        from ctypes import PYFUNCTYPE, c_int, c_ssize_t, c_void_p, py_object, pythonapi

        # Prototypes of our own: those of `pythonapi` are shared with everyone in the process.
        return _Interpreter(
            PYFUNCTYPE(py_object, c_void_p, c_ssize_t)(("PyBytes_FromStringAndSize", pythonapi)),
            PYFUNCTYPE(c_void_p, py_object)(("PyBytes_AsString", pythonapi)),
            PYFUNCTYPE(py_object, c_void_p, c_ssize_t, c_int)(("PyMemoryView_FromMemory", pythonapi)),
        )
    except (ImportError, AttributeError):
        return None


class Assembly:
    """The bytes of one message while they arrive. `view` is where they are written; memory that nothing was written
    to is only reserved."""

    __slots__ = ("_body", "view")

    def __init__(self, body: bytes, view: memoryview) -> None:
        self._body = body
        self.view = view

    def finish(self) -> bytes:
        """Return the message, all of which was written. Nothing can be written any more, and nothing is kept."""
        self.view.release()
        body, self._body = self._body, b""
        return body


def begin(size: int) -> Assembly | None:
    """Reserve memory for a message; None where that cannot be."""
    interpreter = _interpreter()
    if interpreter is None or size < 1:
        return None
    try:
        body = interpreter.empty(None, size)
    except MemoryError:
        return None
    return Assembly(body, interpreter.view(interpreter.address(body), size, _WRITABLE))
