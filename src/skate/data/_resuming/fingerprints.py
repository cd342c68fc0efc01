"""Fingerprints of plans and functions: short texts that change when the program changes.

The fingerprint of a function covers its code, its defaults, its closure, and the functions and constants of the user's
modules that it names. Functions and classes of installed packages count by name only, as do objects that are neither
plain data nor instances of user classes, because they cannot be compared.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import pathlib
import re
import sys
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._exec.udf import Udf
from skate.data._expressions.expr import Expr
from skate.data._plan import nodes
from skate.data.datasource import Datasink, Datasource

_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, type(...))
_BY_TEXT = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    pathlib.PurePath,
    re.Pattern,
    range,
    slice,
    np.generic,
    np.dtype,
    pa.DataType,
    pa.Field,
    pa.Schema,
    pc.Expression,
)
# Attributes of a class that do not affect the behaviour of its objects.
_IGNORED_CLASS_ATTRIBUTES = {
    "__module__",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__annotations__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
}
# Fields of a plan node that affect how and where it runs, but not its result.
_IGNORED_NODE_FIELDS = {"input", "parts", "compute", "source", "items", "sink", "job", "in_units", "blocks"}
# Attributes of internal objects: per-process keys, facts that units identify already, and caches.
_IGNORED_INTERNAL_ATTRIBUTES = {
    "_key",
    "_instance_id",
    "_fingerprint",
    "_files",
    "_filesystem",
    "filesystem",
    "_target",
    "_footers",
    "_runs",
    "_full_schema",
    "_write_uuid",
    "_staging_folder",
    "_distributed",
    "_replaced",
    "_skips",
    "_part",
    "_written",
    "path",
    "unresolved_path",
}
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def fingerprint_steps(plan: nodes.Node, sink: Any) -> dict[str, str]:
    """Return the fingerprints of the steps of a plan and of its sink, by name."""
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for number, node in enumerate(plan.walk()):
        if isinstance(node, nodes.Write):
            continue
        made: list[Any] = [type(node).__name__]
        if isinstance(node, nodes.Read):
            made += [type(node.source), _own(node.source)]
        made.append(
            {
                each.name: getattr(node, each.name)
                for each in dataclasses.fields(node)
                if each.name not in _IGNORED_NODE_FIELDS
            }
        )
        found[f"step {number}, {node.title}"] = digest(made)
    found["the writer"] = digest([type(sink), _own(sink)])
    return found


def digest(value: Any) -> str:
    """Return the fingerprint of a value or a function.

    >>> from functools import partial
    >>> digest(partial(round, ndigits=1)) == digest(partial(round, ndigits=1))
    True
    >>> digest(partial(round, ndigits=1)) == digest(partial(round, ndigits=2))
    False
    """
    walk = _Walk()
    walk.add(value)
    return walk.found.hexdigest()


def _own(value: Any) -> dict[str, Any]:
    left_out = _IGNORED_INTERNAL_ATTRIBUTES if isinstance(value, (Datasource, Datasink, Udf, Expr)) else ()
    return {name: each for name, each in vars(value).items() if name not in left_out}


class _Walk:
    """Hashes a value and everything it refers to, each object once."""

    def __init__(self) -> None:
        self.found = hashlib.blake2b(digest_size=12)
        self._seen: dict[int, tuple[int, Any]] = {}  # a reference to the value keeps its id unique

    def add(self, value: Any) -> None:
        """Hash a value."""
        if isinstance(value, _CONSTANTS):
            self._note(type(value).__name__, repr(value))
        elif isinstance(value, enum.Enum):
            self._note("enum", type(value).__qualname__, value.name)
        elif isinstance(value, _BY_TEXT):
            self._note(type(value).__qualname__, str(value))
        elif isinstance(value, (tuple, frozenset, types.CodeType)):
            # Equal constants may or may not be one object, depending on how the module was loaded.
            self._add_new(value)
        elif id(value) in self._seen:
            self._note("again", str(self._seen[id(value)][0]))
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._add_new(value)

    def _add_new(self, value: Any) -> None:
        match value:
            case list() | tuple():
                self._add_all(type(value).__name__, value)
            case set() | frozenset():
                self._note("set", *sorted(map(digest, value)))
            case dict():
                keys = {digest(key): key for key in value}
                self._note("dict", *sorted(keys))
                self._add_all("values", [value[keys[name]] for name in sorted(keys)])
            case np.ndarray() if value.dtype != object:
                self._note("array", value.dtype.str, str(value.shape))
                self.found.update(np.ascontiguousarray(value).tobytes())
            case types.FunctionType():
                self._add_function(value)
            case types.MethodType():
                self._add_all("method", (value.__func__, value.__self__))
            case functools.partial():
                self._add_all("partial", (value.func, value.args, value.keywords))
            case staticmethod() | classmethod():
                self._add_all(type(value).__name__, (value.__func__,))
            case property():
                self._add_all("property", (value.fget, value.fset))
            case types.CodeType():
                self._add_code(value)
            case types.ModuleType():
                self._note("module", value.__name__)
            case type():
                self._add_class(value)
            case _:
                self._add_object(value)

    def _add_function(self, function: types.FunctionType) -> None:
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        self._note("function", function.__name__)
        self._add_all("given", (function.__defaults__, function.__kwdefaults__, cells))
        if _is_of_a_library(function.__module__):
            self._note(str(function.__module__), function.__qualname__)
            return
        self.add(function.__code__)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self._note("global", name)
                self._add_global(function.__globals__[name])

    def _add_global(self, value: Any) -> None:
        # Mutable globals change while the program runs: only immutable ones count.
        counts = isinstance(
            value, (*_CONSTANTS, tuple, frozenset, types.ModuleType, type, types.FunctionType)
        )
        self.add(value if counts else type(value))

    def _add_code(self, code: types.CodeType) -> None:
        self._note("code", code.co_code.hex(), str(code.co_argcount), str(code.co_flags))
        self._note("names", *code.co_names, *code.co_varnames, *code.co_freevars)
        self._add_all("constants", code.co_consts)

    def _add_class(self, cls: type) -> None:
        self._note("class", cls.__module__, cls.__qualname__)
        if _is_of_a_library(cls.__module__):
            return
        for name, value in sorted(vars(cls).items()):
            if name not in _IGNORED_CLASS_ATTRIBUTES:
                self._note("member", name)
                self.add(value)
        self._add_all("bases", cls.__bases__)

    def _add_object(self, value: Any) -> None:
        cls = type(value)
        self.add(cls)
        if dataclasses.is_dataclass(value) and not hasattr(value, "__dict__"):
            self.add({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
        elif hasattr(value, "__dict__") and (
            _is_ours(cls.__module__) or not _is_of_a_library(cls.__module__)
        ):
            self.add(_own(value))

    def _add_all(self, kind: str, values: Iterable[Any]) -> None:
        many = list(values)
        self._note(kind, str(len(many)))
        for each in many:
            self.add(each)

    def _note(self, *texts: str) -> None:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self.found.update(b"%d:" % len(data))  # the lengths keep different lists of texts apart
            self.found.update(data)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _names(code: types.CodeType) -> set[str]:
    """Return the global names that code and its nested functions look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "skate"


@functools.lru_cache(maxsize=1024)
def _is_of_a_library(module: str | None) -> bool:
    """Return whether a module belongs to an installed package, to Python, or to Skate."""
    if module is None:
        return False
    if module == "builtins" or _is_ours(module):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.builtin_module_names
    return str(file).startswith(_LIBRARIES)
