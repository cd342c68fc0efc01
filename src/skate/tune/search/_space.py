"""Search spaces as trees of dicts, lists and tuples: paths to values, and the domains among the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, TypeAlias

from skate.tune.search.sample import Categorical, Domain, Function, Sampler

Path: TypeAlias = tuple[Any, ...]

# Search-space types of other libraries, by the module that defines them, and the searcher that accepts them.
_FOREIGN = {
    "optuna.distributions": "OptunaSearch",
    "hyperopt.pyll": "HyperOptSearch",
    "nevergrad.parametrization": "NevergradSearch",
    "ConfigSpace": "TuneBOHB",
    "hebo.design_space": "HEBOSearch",
    "ax.core": "AxSearch",
    "scipy.stats": None,
}


def format_path(path: Path) -> str:
    """Return a path as text, such as `optimizer/lr`, without the leading `config` of an experiment."""
    return "/".join(str(part) for part in (path[1:] if len(path) > 1 and path[0] == "config" else path))


def sort_key(path: Path) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts paths whose parts are strings and positions."""
    return tuple((True, 0, str(part)) if not isinstance(part, int) else (False, part, "") for part in path)


def to_domain(value: Any, path: Path = ()) -> Domain | None:
    """Return the domain that a value of a space stands for, or None for a constant.

    Args:
        value: The value.
        path: The path of the value, for error messages.

    Raises:
        TypeError: A grid has no list of values.
        ValueError: A grid has no value.
    """
    if isinstance(value, Domain):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        return None
    if "grid_search" in value:
        values = value["grid_search"]
        if not isinstance(values, Iterable) or isinstance(values, str | bytes):
            raise TypeError(
                f"grid_search at {format_path(path)!r} needs a list of values, got {type(values).__name__}: {values!r}."
            )
        if not (values := list(values)):
            raise ValueError(f"grid_search at {format_path(path)!r} needs at least one value, got none.")
        return Categorical(values).grid()
    if isinstance(value.get("eval"), str):
        return Function(_Expression(value["eval"]))
    return None


class _Expression:
    """A Python expression of `spec`, for spaces that are written in JSON or YAML."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, spec: Any) -> Any:
        import random

        import numpy as np

        return eval(self._text, {"random": random, "np": np}, {"spec": spec})

    def __repr__(self) -> str:
        return f"eval {self._text!r}"


def walk(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Domain | None, Any]]:
    """Yield the path, domain and value of every leaf; the domain is None for constants."""
    domain = to_domain(tree, path)
    if domain is not None:
        yield path, domain, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from walk(value, (*path, key))
    elif isinstance(tree, list | tuple):
        for position, value in enumerate(tree):
            yield from walk(value, (*path, position))
    else:
        yield path, None, tree


def domains(tree: Any) -> Iterator[tuple[Path, Domain]]:
    """Yield the domains of a space and their paths."""
    return ((path, domain) for path, domain, _ in walk(tree) if domain is not None)


def has_domains(tree: Any) -> bool:
    """Return whether a space has values to sample or to enumerate."""
    return any(True for _ in domains(tree))


def check_constants(tree: Any) -> None:
    """Check that no value of a space is an object that only resembles a domain.

    Raises:
        TypeError: A value is a sampler, a domain class, or a definition of another library.
    """
    for path, domain, value in walk(tree):
        if domain is not None:
            continue
        where = f"The search space has a value of an unknown type at {format_path(path)!r}: "
        if isinstance(value, Sampler) or (isinstance(value, type) and issubclass(value, Domain | Sampler)):
            raise TypeError(f"{where}{value!r}. Use a function such as tune.uniform(lower, upper).")
        module = type(value).__module__
        for prefix, searcher in _FOREIGN.items():
            if module == prefix or module.startswith((f"{prefix}.", f"{prefix}_")):
                remedy = f" or pass it to {searcher}(space=...)" if searcher else ""
                raise TypeError(
                    f"{where}{module}.{type(value).__name__}. Use tune.uniform() and the like{remedy}."
                )


def get_value(tree: Any, path: Path) -> Any:
    """Return the value at a path.

    Raises:
        KeyError, IndexError, TypeError: There is none.
    """
    for part in path:
        tree = tree[part]
    return tree


def assign_value(tree: Any, path: Path, value: Any) -> Any:
    """Replace the value at a path, and return the tree, which is a new one if it is a tuple."""
    head, *rest = path
    child = assign_value(tree[head], tuple(rest), value) if rest else value
    if isinstance(tree, tuple):
        parts = [*tree[:head], child, *tree[head + 1 :]]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    tree[head] = child
    return tree


def copy_tree(tree: Any) -> Any:
    """Copy dicts, lists and tuples; share the other values, which may be large."""
    if isinstance(tree, dict):
        new = {} if type(tree) is dict else copy(tree)
        for key, value in tree.items():
            new[key] = copy_tree(value)
        return new
    if isinstance(tree, list):
        return [copy_tree(value) for value in tree]
    if isinstance(tree, tuple):
        parts = [copy_tree(value) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def flatten(tree: Mapping[Any, Any], path: Path = ()) -> dict[Path, Any]:
    """Return the values of nested dicts by their paths."""
    flat: dict[Path, Any] = {}
    for key, value in tree.items():
        flat.update(
            flatten(value, (*path, key)) if isinstance(value, dict) and value else {(*path, key): value}
        )
    return flat


def unflatten(flat: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return nested dicts of values by names such as `optimizer/lr`.

    Raises:
        TypeError: A name continues the name of a value that is not a dict.
    """
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(delimiter)
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise TypeError(
                    f"{name!r} needs a dict at {parent!r}, which has the value {place!r}: rename one."
                )
        place[last] = value
    return tree


def merge(base: Mapping[Any, Any], update: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a copy of nested dicts with values replaced and added."""
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        nested = isinstance(old, dict) and isinstance(value, dict) and to_domain(old) is None
        merged[key] = merge(old, value) if nested else value  # type: ignore[arg-type]
    return merged


def fill(space: Any, values: Mapping[Path, Any]) -> dict[Any, Any]:
    """Return nested dicts of the values at their paths.

    A list that contains such values is returned as a whole, because a configuration is merged by keys.
    """
    filled = copy_tree(space)
    for path, value in values.items():
        filled = assign_value(filled, path, value)
    result: dict[Any, Any] = {}
    for path in values:
        source, place = filled, result
        for position, part in enumerate(path):
            source = source[part]
            if position == len(path) - 1 or not isinstance(source, dict):
                place[part] = source
                break
            place = place.setdefault(part, {})
    return result


def finite_number(value: Any) -> float | None:
    """Return a number of any library as a float; None if the value is not a number, NaN or infinite."""
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
