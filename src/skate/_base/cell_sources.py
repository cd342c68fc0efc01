"""Source lines of code that is in no file: cells of a notebook, and input of an interactive shell.

The shell keeps such lines in `linecache`, where tracebacks and `inspect.getsource` look for them. They travel with
the code, so that both work in the process that receives it.
"""

from __future__ import annotations

import linecache
from types import CodeType
from typing import Any

import cloudpickle

_reduce: Any = cloudpickle.Pickler.dispatch_table[CodeType]


def reduce_code(code: CodeType) -> tuple[Any, ...]:
    """Return how to pickle a code object, with the lines of its source if they are in no file."""
    function, arguments = _reduce(code)
    lines = _lines_of(code.co_filename)
    if lines is None:
        return function, arguments
    return code_with_source, (code.co_filename, lines, arguments)


def code_with_source(filename: str, lines: list[str], arguments: tuple[Any, ...]) -> CodeType:
    """Make a code object, and keep the lines of its source for tracebacks."""
    if filename not in linecache.cache:
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    return CodeType(*arguments)


def _lines_of(filename: str) -> list[str] | None:
    entry = linecache.cache.get(filename)
    if entry is None or len(entry) == 1:
        return None
    _, modified, lines, _ = entry
    return lines if modified is None else None  # a file has a time of modification
