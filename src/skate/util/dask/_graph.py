"""Conversion of dask's task graphs for the scheduler."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

import skate

# Loaded by name: dask's types differ between versions, and the package may be absent.
try:
    dask: Any = import_module("dask")
    dask_callbacks: Any = import_module("dask.callbacks")
    _task_spec: Any = import_module("dask._task_spec")
    order: Any = import_module("dask.order").order
except ImportError as error:
    raise ImportError("skate.util.dask needs dask 2024.12 or newer: pip install 'dask>=2024.12'") from error

Alias: Any = _task_spec.Alias
DataNode: Any = _task_spec.DataNode
GraphNode: Any = _task_spec.GraphNode
Task: Any = _task_spec.Task

__all__ = [
    "Alias",
    "DataNode",
    "GraphNode",
    "Key",
    "Node",
    "as_graph",
    "cull",
    "dask",
    "dask_callbacks",
    "options_by_key",
    "order",
    "refs_in",
    "substitute_values",
]

Key = Hashable
Node = Any  # an instance of GraphNode

# Otherwise dask pickles a reference to name the collection that it is part of.
dask.base.normalize_token.register(skate.ObjectRef, lambda ref: ("skate.ObjectRef", ref.hex()))


def as_graph(dsk: Any) -> dict[Key, Node]:
    """Return a graph or expression of any kind as nodes by key."""
    mapping = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
    graph: dict[Key, Node] = _task_spec.convert_legacy_graph(mapping)
    return graph


def cull(graph: dict[Key, Node], keys: Iterable[Key]) -> dict[Key, Node]:
    """Return the part of the graph that the keys depend on.

    Raises:
        KeyError: If the graph lacks a key or one of its dependencies.
    """
    needed: dict[Key, Node] = {}
    todo = list(keys)
    while todo:
        key = todo.pop()
        if key not in needed:
            needed[key] = graph[key]
            todo.extend(needed[key].dependencies)
    return needed


def options_by_key(dsk: Any, common: dict[str, Any], keys: Iterable[Key]) -> dict[Key, dict[str, Any]]:
    """Return the task options of every key.

    Annotations of a collection (`dask.annotate(ray_remote_args=...)`) take precedence over active ones, and both over
    `common`.

    Raises:
        ValueError: If `resources` are annotated directly, as for dask's own scheduler.
    """
    now = dask.get_annotations()
    annotated = _annotations_of(dsk)
    if "resources" in now or "resources" in annotated:
        raise ValueError(
            "Skate expects resources in the task options: "
            "use dask.annotate(ray_remote_args={'resources': ...})"
        )
    common = {**common, **now.get("ray_remote_args", {})}
    own = annotated.get("ray_remote_args", {})
    return {key: {**common, **own[key]} if key in own else common for key in keys}


def _annotations_of(dsk: Any) -> dict[str, dict[Key, Any]]:
    """Return the annotations in a graph, by kind and key."""
    if hasattr(dsk, "__dask_annotations__"):
        of_expression: dict[str, dict[Key, Any]] = dsk.__dask_annotations__()
        return of_expression
    found: dict[str, dict[Key, Any]] = {}
    for layer in getattr(dsk, "layers", {}).values():
        for kind, value in (layer.annotations or {}).items():
            for key in layer:
                found.setdefault(kind, {})[key] = value(key) if callable(value) else value
    return found


def refs_in(node: Any) -> Iterator[skate.ObjectRef[Any]]:
    """Yield the references in a node: arguments of its call, and data that dask has fused into it."""
    match node:
        case skate.ObjectRef():
            yield node
        case DataNode(value=skate.ObjectRef()):
            yield node.value
        case Task():
            for part in (*node.args, *node.kwargs.values()):
                yield from refs_in(part)
        case dict():  # the inner graph of fused tasks
            for part in node.values():
                if isinstance(part, GraphNode):
                    yield from refs_in(part)


def substitute_values(node: Any, values: Mapping[skate.ObjectRef[Any], Any]) -> Any:
    """Return the node with references replaced by their values."""
    match node:
        case skate.ObjectRef():
            return values[node]
        case DataNode(value=skate.ObjectRef()):
            return DataNode(node.key, values[node.value])
        case Task():
            # A copy: the program may compute its graph again.
            changed = copy.copy(node)
            changed.args = tuple(substitute_values(part, values) for part in node.args)
            changed.kwargs = {name: substitute_values(part, values) for name, part in node.kwargs.items()}
            return changed
        case dict():
            return {
                k: substitute_values(v, values) if isinstance(v, GraphNode) else v for k, v in node.items()
            }
    return node
