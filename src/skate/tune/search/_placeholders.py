"""Placeholders: short strings that stand for the objects of a search space.

A search space may contain references, datasets, models and functions. The search algorithm, its saved state and the
journal contain placeholders instead, so that each object is stored only once per experiment. A restored experiment may
replace the objects, because a placeholder depends only on the position of its object in the space.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from pathlib import PurePath
from typing import Any

import numpy as np

import skate
from skate.tune.search._space import (
    Path,
    assign_value,
    check_constants,
    get_value,
    has_domains,
    to_domain,
)
from skate.tune.search.sample import Categorical, Domain, Function

_PLAIN = (
    bool, int, float, complex, str, bytes, np.generic, PurePath, enum.Enum, datetime.date, datetime.timedelta,
    type(None),
)  # fmt: skip
_NOT_IN_LABELS = re.compile(r"[^\w.-]")
_TOKEN = re.compile(r"<[\w.-]+ [0-9a-f]{8}>")
_MAX_SHOWN = 100  # elements of an array that is written to the files of a trial


class Placeholder(str):
    """A string that stands for an object. It is pickled without the object; an `ObjectTable` provides it again."""

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (str(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return self


class _StoredFunction(Function):
    """A function of the search space, which is pickled as a placeholder."""

    def __init__(self, placeholder: str) -> None:
        self._placeholder = placeholder
        super().__init__(
            placeholder.value if isinstance(placeholder, Placeholder) else _MissingFunction(placeholder)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _StoredFunction, (self._placeholder,)


class _MissingFunction:
    """Replaces a function that was unpickled without its object table."""

    def __init__(self, placeholder: str) -> None:
        self._placeholder = placeholder

    def __call__(self) -> Any:
        raise RuntimeError(
            f"the function {self._placeholder} of the search space is not stored with the search algorithm: restore "
            "the experiment with Tuner.restore()."
        )


_table: ContextVar[ObjectTable | None] = ContextVar("object table", default=None)


def _load(text: str) -> str:
    """Return an unpickled placeholder. If its object is unknown, return a plain string."""
    table = _table.get()
    return text if table is None else table.placeholder(text)


class ObjectTable:
    """The objects of a search space by their placeholders.

    Args:
        space: The search space.
        earlier: Returns the search space of the first run of a restored experiment, for placeholders of objects that
            `space` does not have.

    Attributes:
        space: The search space with placeholders, for the search algorithm.

    Raises:
        TypeError: The space has a definition of another library.
    """

    def __init__(
        self, space: Mapping[str, Any], earlier: Callable[[], Mapping[str, Any]] | None = None
    ) -> None:
        self._placeholders: dict[str, Placeholder] = {}
        self._by_identity: dict[int, dict[Path, Placeholder]] = {}
        self._structures: dict[Path, type] = {}
        self._references: dict[str, Any] = {}
        self._earlier = earlier
        check_constants(dict(space))
        self.space: dict[str, Any] = self._inject(dict(space), (), ())

    def __bool__(self) -> bool:
        return bool(self._placeholders or self._structures or self._earlier)

    # ------------------------------------------------------------ the space

    def _inject(self, tree: Any, place: Path, path: Path) -> Any:
        """Return a part of the space with placeholders.

        Args:
            tree: The part.
            place: Where it is in the space; it identifies the object.
            path: Where it will be in a configuration.
        """
        if isinstance(tree, dict) and set(tree) == {"grid_search"}:
            grid = to_domain(tree, path)
            assert isinstance(grid, Categorical)
            return {"grid_search": self._inject_categories(grid, place, path)}
        if isinstance(tree, Categorical):
            found = copy(tree)
            found.categories = self._inject_categories(tree, place, path)
            return found
        if isinstance(tree, Function):
            return _StoredFunction(self._add(tree.func, (*place, "function"), ()))
        if isinstance(tree, dict):
            return {key: self._inject(value, (*place, key), (*path, key)) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            parts = [self._inject(value, (*place, i), (*path, i)) for i, value in enumerate(tree)]
            if isinstance(tree, list):
                return parts
            return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
        if isinstance(tree, (Domain, *_PLAIN)):
            return tree
        if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
            fields = {each.name: getattr(tree, each.name) for each in dataclasses.fields(tree) if each.init}
            if has_domains(fields):
                self._structures[path] = type(tree)
                return self._inject(fields, place, path)
        return self._add(tree, place, path)

    def _inject_categories(self, domain: Categorical, place: Path, path: Path) -> list[Any]:
        return [self._inject(value, (*place, i), path) for i, value in enumerate(domain.categories)]

    def _add(self, value: Any, place: Path, path: Path) -> Placeholder:
        label = _NOT_IN_LABELS.sub("", str(getattr(value, "__name__", None) or type(value).__name__))
        digest = hashlib.sha256(repr(place).encode()).hexdigest()[:8]
        placeholder = Placeholder(f"<{label or 'value'} {digest}>")
        placeholder.value = value
        self._placeholders[digest] = placeholder
        self._by_identity.setdefault(id(value), {})[path] = placeholder
        return placeholder

    # ------------------------------------------------------------ configurations

    def resolve(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a configuration with the objects in place of their placeholders."""
        found = _replace(config, self._object_of)
        for path, kind in reversed(self._structures.items()):  # inner ones first
            try:
                fields = get_value(found, path)
            except (KeyError, IndexError, TypeError):
                continue  # in a part of the space that was not chosen
            if isinstance(fields, dict):
                assign_value(found, path, kind(**fields))
        return found  # type: ignore[no-any-return]

    def replace(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a configuration with placeholders in place of the objects of the search space."""
        return _replace(config, self._placeholder_of)  # type: ignore[no-any-return]

    def references(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the references that a worker needs for the placeholders of a configuration, for `receive`.

        Each object is put into the object store when the first trial needs it; references are passed as they are.
        """
        found: dict[str, Any] = {}

        def add(value: Any, path: Path) -> Any:
            if isinstance(value, Placeholder):
                found[str(value)] = self._reference(value)
            return value

        _replace(config, add)
        return found

    def _reference(self, placeholder: Placeholder) -> Any:
        known = self._references.get(placeholder)
        if known is None:
            value = placeholder.value
            is_stored = not isinstance(value, skate.ObjectRef)
            known = self._references[placeholder] = (is_stored, skate.put(value) if is_stored else value)
        return known

    def placeholder(self, text: str) -> str:
        """Return the placeholder for a string; the string itself if it does not stand for an object."""
        if not _TOKEN.fullmatch(text):
            return text
        digest = text[-9:-1]
        if digest not in self._placeholders and self._earlier is not None:
            for key, each in ObjectTable(self._earlier())._placeholders.items():
                self._placeholders.setdefault(key, each)
            self._earlier = None
        return self._placeholders.get(digest, text)

    def _object_of(self, value: Any, path: Path) -> Any:
        if not isinstance(value, str):
            return value
        found = self.placeholder(value)
        if not isinstance(found, Placeholder):
            found = value
        return found.value if isinstance(found, Placeholder) else value

    def _placeholder_of(self, value: Any, path: Path) -> Any:
        places = self._by_identity.get(id(value))
        if places is None or isinstance(value, _PLAIN):
            return value
        return places.get(path) or next(iter(places.values()))

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While it is open, placeholders that are unpickled stand for the objects of this table."""
        token = _table.set(self)
        try:
            yield
        finally:
            _table.reset(token)


def receive(config: dict[str, Any], references: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of a trial, and the configuration as its files show it. Called in a worker.

    Args:
        config: The configuration with placeholders.
        references: The references that `ObjectTable.references` returned.
    """
    # Each trial gets its own copies, because it may change them.
    objects = {
        text: skate.get(value) if is_stored else value for text, (is_stored, value) in references.items()
    }

    def find(value: Any, path: Path) -> Any:
        return objects.get(value, value) if isinstance(value, str) else value

    def show(value: Any, path: Path) -> Any:
        found = find(value, path)
        size = getattr(found, "size", None)
        return value if isinstance(size, int) and size > _MAX_SHOWN else found

    return _replace(config, find), _replace(config, show)


def _replace(tree: Any, replacement: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    """Return a copy of nested dicts, lists and tuples with other values replaced."""
    if isinstance(tree, dict):
        return {key: _replace(value, replacement, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replace(value, replacement, (*path, i)) for i, value in enumerate(tree)]
    if isinstance(tree, tuple):
        parts = [_replace(value, replacement, (*path, i)) for i, value in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return replacement(tree, path)


def session_of_references(space: Mapping[str, Any]) -> str | None:
    """Return the name of the session if a search space contains references to objects; else None."""
    if not any(isinstance(each, skate.ObjectRef) for each in _values(space)):
        return None
    return skate.get_runtime_context().get_session_name() if skate.is_initialized() else ""


def check_references(session: str | None) -> None:
    """Check that the objects of a stored search space still exist.

    Args:
        session: The session of the references in the search space; None if there are none.

    Raises:
        ValueError: That session has ended.
    """
    if session is None:
        return
    if not skate.is_initialized() or skate.get_runtime_context().get_session_name() != session:
        raise ValueError(
            "the search space of the experiment contains references to objects that no longer exist, because their "
            "session has ended: call Tuner.restore(..., param_space=...) with the same parameters and new objects."
        )


def _values(tree: Any) -> Iterator[Any]:
    """Yield the values of a search space, with those of its grids and choices."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _values(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _values(value)
    elif isinstance(tree, Categorical):
        yield from _values(tree.categories)
    else:
        yield tree
