"""Diagnosis of objects that cannot be sent to a task or an actor."""

from __future__ import annotations

import reprlib
import sys
from itertools import pairwise
from types import FunctionType, MethodType
from typing import IO, Any, Final

from skate._base.pickle_trace import (
    Failure,
    Node,
    describe_type,
    pickling_error,
    trace_failures,
    unserializable_path,
)

__all__ = ["FailureTuple", "inspect_serializability", "unserializable_path"]

# More failures than this usually share a cause, which the first ones show.
MOST_FAILURES: Final = 20

_PICKLING_METHODS: Final = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)
_repr = reprlib.Repr()
_repr.maxother = 80

_REMEDY: Final = (
    "Create such objects inside the task or actor that uses them, exclude them with __getstate__, or "
    "register a serializer: skate.util.register_serializer(cls, serializer=..., deserializer=...)."
)
_OWN_REDUCE_FAILED: Final = (
    "WARNING: its parts can be serialized, but its own __reduce__ or __getstate__ raised an error. "
    "Fix that, then call inspect_serializability again."
)


class FailureTuple:
    """An object that cannot be serialized.

    Attributes:
        obj: The object.
        path: The names that lead to it, from the outermost; empty for the inspected object itself.
        parent: The object that contains it; None for the inspected object itself.
    """

    def __init__(self, obj: Any, path: tuple[str, ...], parent: Any) -> None:
        self.obj = obj
        self.path = path
        self.parent = parent

    @property
    def name(self) -> str:
        """The name of the object in its parent, or ``unknown``."""
        return self.path[-1] if self.path else "unknown"

    def __repr__(self) -> str:
        return (
            f"FailureTuple({self.name} [path={' -> '.join(self.path)}, obj={_repr.repr(self.obj)}, "
            f"parent={_repr.repr(self.parent)}])"
        )


def inspect_serializability(
    base_obj: Any,
    name: str | None = None,
    depth: int = 3,
    print_file: IO[str] | None = None,
) -> tuple[bool, set[FailureTuple]]:
    """Return whether `base_obj` can be serialized, and print the parts that cannot.

    Args:
        base_obj: Any object.
        name: Name of the object in the printed paths.
        depth: Maximum number of steps; deeper failures are reported for their container at this depth.
        print_file: The file to print to; standard output by default.

    Returns:
        Whether it can be serialized, and the parts that cannot.

    Example:
        >>> import io, threading
        >>> lock = threading.Lock()
        >>> fine, failures = inspect_serializability({"a": [lock]}, name="job", print_file=io.StringIO())
        >>> fine, [(failure.path, failure.obj is lock) for failure in failures]
        (False, [(('job', 'a', '0'), True)])
    """
    out = sys.stdout if print_file is None else print_file
    title = f"Checking Serializability of {_repr.repr(base_obj)}"
    rule = "=" * min(len(title), 100)
    out.write(f"{rule}\n{title}\n{rule}\n")
    error = pickling_error(base_obj)
    if error is None:
        return True, set()

    failures = trace_failures(base_obj, name, most=MOST_FAILURES)
    if not failures:
        # Too large to search, or it fails only as a whole: report the object itself.
        failures = [Failure(error, (Node(name or "obj", name or "obj", base_obj),))]
    found: dict[int, FailureTuple] = {}
    for failure in failures:
        nodes = failure.nodes[: max(depth, 0) + 1]
        if id(nodes[-1].obj) in found:
            continue
        out.write(_report(failure, nodes))
        path = tuple(node.name for node in nodes[1:])
        found[id(nodes[-1].obj)] = FailureTuple(
            nodes[-1].obj,
            path if name is None else (name, *path),
            nodes[-2].obj if len(nodes) > 1 else None,
        )
    out.write(f"{rule}\n{_REMEDY}\n{rule}\n")
    return False, set(found.values())


def _report(failure: Failure, nodes: tuple[Node, ...]) -> str:
    """Describe one failure, step by step along `nodes`."""
    path = "".join(node.label for node in nodes)
    lines = [f"!!! FAIL {path} ({describe_type(nodes[-1].obj)}): {failure.error}"]
    for above, node in pairwise(nodes):
        named = above.obj if isinstance(above.obj, type | FunctionType | MethodType) else type(above.obj)
        lines.append(
            f"    in '{named.__qualname__}': {node.label.removeprefix('.')} = {_repr.repr(node.obj)}"
        )
    if len(nodes) < len(failure.nodes):
        lines.append(
            f"    and {len(failure.nodes) - len(nodes)} more levels; pass a larger depth to see them"
        )
    elif not isinstance(failure.culprit, type) and _customizes_pickling(type(failure.culprit)):
        lines.append(f"    {_OWN_REDUCE_FAILED}")
    return "\n".join(lines) + "\n"


def _customizes_pickling(kind: type) -> bool:
    """Return whether the class customizes pickling in Python."""
    return any(isinstance(getattr(kind, method, None), FunctionType) for method in _PICKLING_METHODS)
