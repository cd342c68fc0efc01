"""Source lines of code without a file: cells of a notebook, and input of an interactive shell.

The shell keeps such lines in `linecache`, where tracebacks and `inspect.getsource` find them. They are pickled with
the code, so that both work in the process that receives it.
"""

from __future__ import annotations

import linecache
from types import CodeType
from typing import Any

import cloudpickle

_reduce: Any = cloudpickle.Pickler.dispatch_table[CodeType]


def reduce_code(code: CodeType) -> tuple[Any, ...]:
    """Return the reduction of a code object, with its source lines if they are in no file."""
    function, arguments = _reduce(code)
    lines = _lines_of(code.co_filename)
    if lines is None:
        return function, arguments
    return code_with_source, (code.co_filename, lines, arguments)


def code_with_source(filename: str, lines: list[str], arguments: tuple[Any, ...]) -> CodeType:
    """Create a code object, and store its source lines for tracebacks."""
    if filename not in linecache.cache:
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    return CodeType(*arguments)


def _lines_of(filename: str) -> list[str] | None:
    entry = linecache.cache.get(filename)
    if entry is None or len(entry) == 1:
        return None
    _, modified, lines, _ = entry
    return lines if modified is None else None  # a file has a modification time
