"""Templates: values that contain nodes at any depth, in which the nodes can be replaced."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

# These types cannot contain nodes, so they are neither searched nor copied. Arrays and tables are large, and
# pickling objects of Skate (references, actor handles) would have side effects.
_OPAQUE_TYPES = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_OPAQUE_PACKAGES = frozenset({"numpy", "pandas", "pyarrow", "skate", "torch"})
_PLAIN_TYPES = frozenset({bool, bytearray, bytes, complex, float, int, str, type(None)})


class Template:
    """A value that may contain nodes at any depth, which `fill` replaces.

    Args:
        value: Any value. A value without nodes is returned unchanged, never copied.
        node_type: The class of nodes.
    """

    __slots__ = ("_buffers", "_data", "_node_type", "_opaque", "is_node", "nodes", "value")

    def __init__(self, value: Any, node_type: type) -> None:
        self.value = value
        self._node_type = node_type
        self.nodes: list[Any] = []
        self._data: bytes | None = None
        self._opaque: list[Any] = []
        self._buffers: list[pickle.PickleBuffer] = []
        self.is_node = isinstance(value, node_type)
        if self.is_node:
            self.nodes = [value]
        elif type(value) not in _PLAIN_TYPES:
            self._search(value)

    def fill(self, replacement: Callable[[Any], Any]) -> Any:
        """Return the value with `replacement(node)` in place of each node."""
        if self.is_node:
            return replacement(self.value)
        if self._data is None:
            return self.value
        reader = _Reader(io.BytesIO(self._data), buffers=self._buffers)
        reader.parts = {"node": [replacement(node) for node in self.nodes], "opaque": self._opaque}
        return reader.load()

    def _search(self, value: Any) -> None:
        data = io.BytesIO()
        writer = _Writer(data, protocol=5, buffer_callback=self._buffers.append)
        writer.node_type = self._node_type
        try:
            writer.dump(value)
        except Exception:  # a user's __reduce__ may raise anything
            # A value that cannot be pickled cannot be searched. It is passed on unchanged; if it cannot be sent to a
            # worker either, that call raises the error.
            return
        self.nodes = writer.nodes
        if writer.nodes:
            self._data, self._opaque = data.getvalue(), writer.opaque

    def __reduce__(self) -> tuple[Any, ...]:
        # Buffers cannot be pickled, so a copy searches again.
        return Template, (self.value, self._node_type)


class _Writer(pickle.Pickler):
    """Pickle a value, with references in place of nodes and opaque objects."""

    node_type: type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nodes: list[Any] = []
        self.opaque: list[Any] = []

    def persistent_id(self, obj: Any) -> tuple[str, int] | None:
        kind = type(obj)
        if kind in _PLAIN_TYPES:
            return None
        if isinstance(obj, self.node_type):
            return "node", _index(obj, self.nodes)
        if isinstance(obj, _OPAQUE_TYPES) or kind.__module__.partition(".")[0] in _OPAQUE_PACKAGES:
            return "opaque", _index(obj, self.opaque)
        return None


class _Reader(pickle.Unpickler):
    """Rebuild the value, with replacements in place of the nodes."""

    parts: dict[str, list[Any]]

    def persistent_load(self, pid: tuple[str, int]) -> Any:
        kind, index = pid
        return self.parts[kind][index]


def _index(item: Any, items: list[Any]) -> int:
    for index, known in enumerate(items):
        if known is item:
            return index
    items.append(item)
    return len(items) - 1
