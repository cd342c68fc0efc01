"""Finding the part of a value that cannot be pickled, and the path to it.

The real pickler only says "cannot pickle '_thread.lock' object". This module walks the value with the standard
library's pickler in Python, which asks every object for the same reduction as the real one but discards the output.
It tracks the chain of enclosing objects, so that a failure has a path; and because it writes nothing, it can step
over a failure and find the next one.
"""

from __future__ import annotations

import pickle
import reprlib
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Final

__all__ = ["Failure", "Node", "describe_type", "pickling_error", "trace_failures", "unserializable_path"]

# About three seconds of work at most, for a value of plain Python objects.
WORK_LIMIT: Final = 1_000_000
# Longer paths are shown without their middle.
SHOWN_NODES: Final = 16
# The Python pickler needs several frames for each one of the C pickler.
RECURSION_FACTOR: Final = 8

_ATOMS: Final = frozenset((int, float, complex, bool, str, bytes, bytearray, type(None), type(...)))
_NAMED: Final = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))

# Tracing raises the interpreter's recursion limit temporarily, so one thread traces at a time. A user's
# __reduce__ may call something that traces again.
_tracing = threading.RLock()


@dataclass(frozen=True, eq=False)
class Node:
    """An object on the path to a failure.

    Attributes:
        name: Its bare name: an attribute, a variable, an index.
        label: The extension of the path of the object before it, such as ``.model`` or ``[0]``.
        obj: The object itself.
    """

    name: str
    label: str
    obj: Any


@dataclass(frozen=True, eq=False)
class Failure:
    """An object that cannot be pickled.

    Attributes:
        error: The exception of the attempt.
        nodes: The objects from the root to the one at fault.
    """

    error: Exception
    nodes: tuple[Node, ...]

    @property
    def culprit(self) -> Any:
        """The object at fault."""
        return self.nodes[-1].obj

    @property
    def path(self) -> str:
        """The path from the root to the object at fault, such as ``args[0].model._lock``."""
        labels = [node.label for node in self.nodes]
        if len(labels) > SHOWN_NODES:
            half = SHOWN_NODES // 2
            labels[half:-half] = [f".<{len(labels) - 2 * half} more>"]
        return "".join(labels)

    def __str__(self) -> str:
        return f"{self.path} ({describe_type(self.culprit)})"


def unserializable_path(obj: Any, name: str | None = None, *, pickler: Any = None) -> str | None:
    """Return the path to the first part of `obj` that cannot be pickled, or None.

    Args:
        obj: Any value, usually one whose pickling has just failed.
        name: The name of `obj` in the path; by default its own name, or ``obj``.
        pickler: The pickler whose reductions apply; by default the core's.

    Returns:
        For example ``args[0].model._lock (a _thread.lock)``; None if nothing was found.

    Example:
        >>> import threading
        >>> unserializable_path({"jobs": [1, threading.Lock()]}, "args")
        "args['jobs'][1] (a _thread.lock)"
    """
    failures = trace_failures(obj, name, most=1, pickler=pickler)
    return str(failures[0]) if failures else None


def trace_failures(
    obj: Any,
    name: str | None = None,
    *,
    most: int = 1,
    work_limit: int = WORK_LIMIT,
    pickler: Any = None,
) -> list[Failure]:
    """Return up to `most` parts of `obj` that cannot be pickled, in pickling order.

    Args:
        obj: The value to trace; it may contain cycles.
        name: Its name in paths; by default its own name, or ``obj``.
        most: The largest number of results.
        work_limit: The largest number of objects to trace.
        pickler: The pickler whose ``reducer_override`` and ``dispatch_table`` apply.
    """
    from skate._base import serialization

    if pickler is None:
        pickler = serialization.Pickler(_Void())
    if name is None:
        name = obj.__name__ if isinstance(obj, _NAMED) else "obj"
    tracer = _Tracer(pickler, name, most, work_limit)
    with _tracing:
        limit = sys.getrecursionlimit()
        collected = serialization.context.collected
        sys.setrecursionlimit(limit * RECURSION_FACTOR)
        # Traced references must not count as sent to another process.
        serialization.context.collected = []
        try:
            tracer.dump(obj)
        except _Stop:
            pass  # enough failures, or enough work
        finally:
            serialization.context.collected = collected
            sys.setrecursionlimit(limit)
    return tracer.failures


def pickling_error(obj: Any) -> Exception | None:
    """Pickle `obj` with the real pickler, discard the result, and return the exception, or None."""
    from skate._base import serialization

    collected = serialization.context.collected
    serialization.context.collected = []  # as above
    try:
        serialization.Pickler(_Void(), protocol=5, buffer_callback=lambda buffer: None).dump(obj)
    except Exception as error:  # a user's __reduce__ may raise anything
        return error
    finally:
        serialization.context.collected = collected
    return None


def describe_type(obj: Any) -> str:
    """Return the type of `obj` with an article: ``a _thread.lock``."""
    if isinstance(obj, type):
        return f"the class {obj.__module__}.{obj.__qualname__}"
    kind = type(obj)
    word = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


class _Stop(Exception):
    """Ends the walk."""


class _Void:
    """A file that discards its data."""

    def write(self, data: Any) -> int:
        return len(data)


@dataclass(slots=True, eq=False)
class _Frame:
    """An object being pickled, and its reduction."""

    obj: Any
    args: Any = None
    state: Any = None


@dataclass(slots=True)
class _Place:
    """The position of a frame: an unnamed part of `owner`, or (role "object") an object."""

    role: str
    owner: Any
    name: str = field(default="")


class _Tracer(pickle._Pickler):
    """Pickles without output, and records failures with their paths."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)
    memo: dict[int, tuple[int, Any]]

    def __init__(self, pickler: Any, name: str, most: int, work_limit: int) -> None:
        # A buffer that the callback does not claim would be copied, however large.
        super().__init__(_Void(), protocol=5, buffer_callback=lambda buffer: None)
        self._pickler = pickler
        self._name = name
        self._most = most
        self._work_left = work_limit
        self._frames: list[_Frame] = []
        self._failed: set[int] = set()
        self.dispatch_table = pickler.dispatch_table
        self.failures: list[Failure] = []

    def reducer_override(self, obj: Any) -> Any:
        # The C pickler never asks for these; the Python pickler does.
        return NotImplemented if type(obj) in _CONTAINERS else self._pickler.reducer_override(obj)

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        self._work_left -= 1
        if self._work_left < 0:
            raise _Stop
        if type(obj) in _ATOMS:
            return
        self._frames.append(_Frame(obj))
        try:
            super().save(obj, save_persistent_id)  # type: ignore[misc]  # typeshed leaves it out
        except _Stop:
            raise
        except Exception as error:  # report any exception of a user's __reduce__
            self._note(error)
            if isinstance(error, RecursionError):
                raise _Stop from error
        finally:
            self._frames.pop()

    def save_reduce(self, func: Any, args: Any, state: Any = None, *rest: Any, **named: Any) -> None:
        frame = self._frames[-1]
        frame.args, frame.state = args, state
        super().save_reduce(func, args, state, *rest, **named)  # type: ignore[misc]  # as above

    def _save_items(self, obj: Any) -> None:
        self._save_each(obj, obj)

    def _save_dict(self, obj: dict[Any, Any]) -> None:
        self._save_each(obj, obj.keys())
        self._save_each(obj, obj.values())

    def _save_each(self, container: Any, items: Iterable[Any]) -> None:
        self.memo[id(container)] = len(self.memo), container
        before = len(container)
        interesting = [item for item in items if type(item) not in _ATOMS]
        # Tracing plain values is cheap, but not free.
        self._work_left -= (before - len(interesting)) // 50
        for item in interesting:
            self.save(item)

    for _kind in (list, tuple, set, frozenset):
        dispatch[_kind] = _save_items
    dispatch[dict] = _save_dict

    def _note(self, error: Exception) -> None:
        culprit = self._frames[-1].obj
        if id(culprit) in self._failed:
            return
        self._failed.add(id(culprit))
        self.failures.append(Failure(error, _nodes(self._frames, self._name)))
        if len(self.failures) >= self._most:
            raise _Stop


def _nodes(frames: Sequence[_Frame], name: str) -> tuple[Node, ...]:
    """Turn the chain of frames into named objects, without parts that only exist during pickling."""
    nodes = [Node(name, name, frames[0].obj)]
    place = _Place("object", frames[0].obj)
    for frame, below in pairwise(frames):
        label, found, place = _step(frame, place, below.obj)
        if label:
            nodes.append(Node(found, label, below.obj))
    if place.role != "object":
        nodes.append(Node(place.role, f".<{place.role}>", frames[-1].obj))
    return tuple(nodes)


def _step(frame: _Frame, place: _Place, child: Any) -> tuple[str, str, _Place]:
    """Return the label and name of `child` below `frame` (empty if it has none), and its position."""
    obj, owner = frame.obj, place.owner
    there = _Place("object", child)
    match place.role:
        case "state" if type(obj) is dict:
            key = _key_of(obj, child)[0]
            if isinstance(owner, types.FunctionType) and key in ("__globals__", "__closure__"):
                return "", "", _Place(str(key).strip("_"), owner)
            return f".{key}", str(key), there
        case "state" if type(obj) in (tuple, list):
            if type(child) is dict and _attribute_of(owner, child) is None:
                return "", "", _Place("state", owner)
            return *_member(owner, obj, child, "state"), there
        case "globals":
            name = str(_key_of(obj, child)[0])
            return f".<globals>.{name}", name, there
        case "closure":
            return "", "", _Place("cell", owner, owner.__code__.co_freevars[_index_of(obj, child)])
        case "cell" if child is frame.args:
            return "", "", place
        case "cell":
            return f".<closure>.{place.name}", place.name, there
        case "args":
            return *_member(owner, obj, child, "reduce"), there
    return _step_into(frame, child)


def _step_into(frame: _Frame, child: Any) -> tuple[str, str, _Place]:
    """Do the same as `_step` for a frame that is an object of its own."""
    obj = frame.obj
    there = _Place("object", child)
    if type(obj) not in _CONTAINERS:
        if child is frame.state:
            if type(child) in (dict, tuple, list):
                return "", "", _Place("state", obj)
            return *_member(obj, (), child, "state"), there
        if child is type(obj):
            return ".__class__", "__class__", there
        if type(child) is tuple and _is_tail_of(child, frame.args):
            return "", "", _Place("args", obj)
    if isinstance(obj, dict):
        key, is_value = _key_of(obj, child)
        return f"[{reprlib.repr(key)}]" if is_value else f".{key}", str(key), there
    if isinstance(obj, list | tuple | deque):
        index = _index_of(obj, child)
        return f"[{index}]", str(index), there
    if isinstance(obj, set | frozenset):
        return ".<item>", "<item>", there
    return *_member(obj, (), child, "reduce"), there


def _member(owner: Any, parts: Sequence[Any], child: Any, role: str) -> tuple[str, str]:
    """Name a part of a reduction after the owner's attribute if it is one, else after its position."""
    name = _attribute_of(owner, child)
    if name is not None:
        return f".{name}", name
    if isinstance(owner, tuple) and (index := _index_of(owner, child)) >= 0:
        fields = getattr(owner, "_fields", None)
        return (f".{fields[index]}", fields[index]) if fields else (f"[{index}]", str(index))
    position = f"[{_index_of(parts, child)}]" if parts else ""
    return f".<{role}>{position}", f"<{role}>{position}"


def _attribute_of(owner: Any, value: Any) -> str | None:
    """Return the attribute of `owner` that is `value`, without running any property."""
    for name, found in getattr(owner, "__dict__", {}).items():
        if found is value:
            return str(name)
    for kind in type(owner).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    found = slot.__get__(owner)
                except AttributeError:
                    continue  # a slot without a value
                if found is value:
                    return name
    return None


def _key_of(mapping: dict[Any, Any], part: Any) -> tuple[Any, bool]:
    """Return the key of a value and True; for a key itself, a description and False."""
    for key, found in mapping.items():
        if found is part:
            return key, True
    return "<key>", False


def _index_of(items: Iterable[Any], value: Any) -> int:
    return next((index for index, found in enumerate(items) if found is value), -1)


def _is_tail_of(part: tuple[Any, ...], whole: Any) -> bool:
    """Return whether `part` is `whole` or its end: pickle saves the class in a reduction on its own."""
    if not isinstance(whole, tuple) or len(part) > len(whole):
        return False
    return all(a is b for a, b in zip(reversed(part), reversed(whole), strict=False))
