"""Variants of a search space: every combination of its grids, with the other values sampled."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skate._base.suggestions import did_you_mean
from skate.tune.search._placeholders import Placeholder
from skate.tune.search._space import (
    Path,
    assign_value,
    check_constants,
    copy_tree,
    domains,
    flatten,
    format_path,
    get_value,
    has_domains,
    sort_key,
    to_domain,
    walk,
)
from skate.tune.search.sample import Categorical, Domain, RandomState

__all__ = [
    "RecursiveDependencyError",
    "assign_value",
    "count_variants",
    "format_vars",
    "generate_variants",
    "grid_search",
    "parse_spec_vars",
]

logger = logging.getLogger(__name__)

_LEAVES = (bool, int, float, str, np.generic, type(None))  # values that contain no domain
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]+")  # characters that names of folders do not contain


class RecursiveDependencyError(ValueError):
    """Values of a search space depend on each other in a cycle."""


class _GridNotAssignedError(Exception):
    """A function read a grid of which no value has been assigned yet."""


def grid_search(values: Iterable[Any]) -> dict[str, Any]:
    """Try every value; several grids form all combinations of their values.

    Args:
        values: The values.

    Returns:
        The grid, as it may be written in JSON or YAML.
    """
    return {"grid_search": values}


def generate_variants(
    unresolved_spec: dict[str, Any], constant_grid_search: bool = False, random_state: RandomState = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """Yield every combination of the grids of a space, with the other values sampled.

    Args:
        unresolved_spec: The space: nested dicts and lists, usually an experiment with a `config`.
        constant_grid_search: Sample values once, and keep them for all combinations; else sample them for each.
        random_state: A seed or NumPy generator; the global state of NumPy if None.

    Yields:
        The sampled and enumerated values by their paths, and the space with these values.

    Raises:
        RecursiveDependencyError: Functions depend on each other in a cycle.
        TypeError: The space has a value of an unknown type.
        ValueError: A function failed.
    """
    yield from Variants(unresolved_spec, constant_grid_search, random_state)


def count_variants(spec: dict[str, Any], presets: Sequence[dict[str, Any]] | None = None) -> int:
    """Return the number of variants of an experiment.

    Args:
        spec: The experiment, with a `config` and `num_samples`.
        presets: Points that replace the first samples.
    """
    counts = [_count(apply_preset(spec, preset)) for preset in presets or ()]
    samples: int = spec.get("num_samples", 1)
    return sum(counts) + max(0, samples - len(counts)) * _count(spec)


def _count(tree: Any) -> int:
    domain = to_domain(tree)
    if isinstance(domain, Categorical) and domain.is_grid():
        return sum(_count(value) for value in domain.categories)
    if domain is not None:
        return 1
    if isinstance(tree, dict):
        return math.prod(_count(value) for value in tree.values())
    if isinstance(tree, list | tuple):
        return math.prod(_count(value) for value in tree)
    return 1


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """Return values as a string that can be part of the name of a folder, such as `lr=0.1000,layers=2`.

    Args:
        resolved_vars: The values by their paths; only the last part of a path is shown.
    """
    ordered = sorted(resolved_vars.items(), key=lambda item: sort_key(item[0]))
    return ",".join(f"{_clean(path[-1])}={_clean(value)}" for path, value in ordered)


def _clean(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else _UNSAFE.sub("_", str(value)).strip("_")


def parse_spec_vars(
    spec: dict[str, Any],
) -> tuple[list[tuple[Path, Any]], list[tuple[Path, Domain]], list[tuple[Path, Categorical]]]:
    """Return the constants, the domains to sample and the grids of a space, with their paths."""
    constants: list[tuple[Path, Any]] = []
    sampled: list[tuple[Path, Domain]] = []
    grids: list[tuple[Path, Categorical]] = []
    for path, domain, value in walk(spec):
        if domain is None:
            constants.append((path, value))
        elif isinstance(domain, Categorical) and domain.is_grid():
            grids.append((path, domain))
        else:
            sampled.append((path, domain))
    return constants, sampled, sorted(grids, key=lambda grid: sort_key(grid[0]))


def apply_preset(spec: dict[str, Any], preset: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment whose `config` has the values of a preset point.

    Args:
        spec: The experiment.
        preset: Nested values; those that the preset does not mention stay in the space.

    Raises:
        ValueError: The preset has a key that the space does not have.
    """
    spec = copy_tree(spec)
    for path, value in _preset_values(spec.get("config", {}), preset):
        place = ("config", *path)
        _warn_if_outside(path, get_value(spec, place), value)
        spec = assign_value(spec, place, copy_tree(value))
    return spec


def _preset_values(space: Any, preset: Mapping[Any, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in preset.items():
        here = (*path, key)
        if key not in space:
            known = [format_path((*path, each)) for each in space]
            raise ValueError(
                f"points_to_evaluate has the key {format_path(here)!r}, which the search space does not have."
                f"{did_you_mean(format_path(here), known)} Its keys are {known}."
            )
        if isinstance(value, dict) and isinstance(space[key], dict) and to_domain(space[key], here) is None:
            yield from _preset_values(space[key], value, here)
        else:
            yield here, value


def _warn_if_outside(path: Path, expected: Any, value: Any) -> None:
    domain = to_domain(expected, path)
    if domain is None or has_domains(value):
        return
    if isinstance(domain, Categorical):
        objects = [each.value for each in domain.categories if isinstance(each, Placeholder)]
        if any(each is value for each in objects):
            return
    if not domain.is_valid(value):
        logger.warning(
            "The value %r of %r in points_to_evaluate is not in %s.",
            value,
            format_path(path),
            domain.domain_str,
        )


class Variants(Iterator[tuple[dict[Path, Any], dict[str, Any]]]):
    """An iterator over the variants of a space that can be pickled between two variants.

    Args:
        spec: The space.
        constant_grid_search: Sample values once, and keep them for all combinations of grids.
        random_state: A seed or NumPy generator; the global state of NumPy if None.
    """

    def __init__(
        self, spec: dict[str, Any], constant_grid_search: bool = False, random_state: RandomState = None
    ) -> None:
        check_constants(spec)
        seeded = isinstance(random_state, int | np.integer)
        self._random_state = np.random.default_rng(random_state) if seeded else random_state
        self._constant = constant_grid_search
        self._spec = copy_tree(spec)
        _, sampled, self._grids = parse_spec_vars(self._spec)
        self._domains: list[Path] | None = [
            path for path, _ in sampled
        ]  # None if they depend on the grids' values
        if not all(isinstance(value, _LEAVES) for _, grid in self._grids for value in grid.categories):
            self._domains = None
        self._count = math.prod([len(grid) for _, grid in self._grids])
        self.restart()

    def restart(self) -> None:
        """Continue with the first variant, and sample all values again."""
        self._base = copy_tree(self._spec) if self._constant else self._spec
        self._sampled: list[Path] = []
        if self._constant:
            self._sampled = _Resolution(self._base, self._random_state).resolve()
        self._next = 0
        self._nested: Variants | None = None  # the combinations of grids that a sampled value contains
        self._nested_paths: list[Path] = []

    def __next__(self) -> tuple[dict[Path, Any], dict[str, Any]]:
        while True:
            if self._nested is not None:
                try:
                    _, spec = found = next(self._nested)
                except StopIteration:
                    self._nested = None
                    continue
                return _values(spec, [*self._nested_paths, *found[0]]), spec
            if self._next >= self._count:
                raise StopIteration
            spec = self._assign_grids(self._next)
            self._next += 1
            paths = [path for path, _ in self._grids] + self._sampled
            resolution = _Resolution(spec, self._random_state)
            paths += resolution.resolve(None if self._constant else self._domains)
            if resolution.is_complete or not has_domains(spec):
                return _values(spec, paths), spec
            self._nested = Variants(spec, self._constant, self._random_state)
            self._nested_paths = paths

    def _assign_grids(self, number: int) -> dict[str, Any]:
        """Return the space with one combination of values; those of the first grid vary fastest."""
        spec = copy_tree(self._base)
        for path, grid in self._grids:
            number, position = divmod(number, len(grid))
            spec = assign_value(spec, path, copy_tree(grid[position]))
        return spec  # type: ignore[no-any-return]


def _values(spec: dict[str, Any], paths: Iterable[Path]) -> dict[Path, Any]:
    return {path: get_value(spec, path) for path in paths}


class _Resolution:
    """Samples the domains of a space in place; a function that reads another domain has it sampled first."""

    def __init__(self, spec: dict[str, Any], random_state: RandomState) -> None:
        self.spec = spec
        self._random_state = random_state
        self._active: list[Path] = []
        self._resolved: list[Path] = []
        self.is_complete = False  # whether the space is known to have no further domain

    def resolve(self, pending: list[Path] | None = None) -> list[Path]:
        """Sample all domains, except for functions that read unassigned grids, and return the paths of the sampled.

        Args:
            pending: The domains, if they are known and no grid is left.
        """
        waiting: set[Path] = set()
        self.is_complete = pending is not None
        while True:
            if pending is None:
                pending = [
                    path
                    for path, domain in domains(self.spec)
                    if not domain.is_grid() and path not in waiting
                ]
            if not pending:
                return self._resolved
            for path in pending:
                try:
                    self._read_domain(path)
                except _GridNotAssignedError:
                    waiting.add(path)
                    self.is_complete = False
            if self.is_complete:
                return self._resolved
            pending = None

    def read(self, path: Path) -> Any:
        """Return the value at a path for a function, sampled if it is a domain."""
        value = self._read_domain(path)
        if isinstance(value, Placeholder):
            return value.value
        if isinstance(value, dict):
            return _View(self, path)
        if isinstance(value, list | tuple) and has_domains(value):
            return _ListView(self, path)
        return value

    def _read_domain(self, path: Path) -> Any:
        value = get_value(self.spec, path)
        while (domain := to_domain(value, path)) is not None:
            if domain.is_grid():
                raise _GridNotAssignedError(format_path(path))
            value = self._sample(path, domain)
        return value

    def _sample(self, path: Path, domain: Domain) -> Any:
        if path in self._active:
            cycle = " -> ".join(
                format_path(each) for each in [*self._active[self._active.index(path) :], path]
            )
            raise RecursiveDependencyError(f"`{format_path(path)}` recursively depends on itself: {cycle}.")
        self._active.append(path)
        try:
            value = domain.sample(_RootView(self), random_state=self._random_state)  # type: ignore[arg-type]
        except (RecursiveDependencyError, _GridNotAssignedError):
            raise
        except Exception as error:
            raise ValueError(
                f"Could not sample {format_path(path)!r} from {domain!r}: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._active.pop()
        if not isinstance(value, _LEAVES):
            self.is_complete = False  # it may contain domains
        assign_value(self.spec, path, copy_tree(value))
        if path not in self._resolved:
            self._resolved.append(path)
        return get_value(self.spec, path)


class _View(Mapping[Any, Any]):
    """A dict of a space as functions see it: with sampled values, and with keys as attributes."""

    def __init__(self, resolution: _Resolution, path: Path) -> None:
        self._resolution = resolution
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        return self._resolution.read((*self._path, key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"The search space has no {format_path((*self._path, name))!r}.") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(get_value(self._resolution.spec, self._path))

    def __len__(self) -> int:
        return len(get_value(self._resolution.spec, self._path))

    def __repr__(self) -> str:
        return repr(get_value(self._resolution.spec, self._path))


class _RootView(_View):
    """The argument of functions: the configuration, which is also its own `config`, as `spec.config`."""

    def __init__(self, resolution: _Resolution) -> None:
        self._has_config = isinstance(resolution.spec.get("config"), dict)
        super().__init__(resolution, ("config",) if self._has_config else ())

    def __getitem__(self, key: Any) -> Any:
        if key == "config" and (self._has_config or key not in self._resolution.spec):
            return _View(self._resolution, self._path)
        if self._has_config and key not in self._resolution.spec["config"]:
            return self._resolution.read((key,))  # a field of the experiment
        return super().__getitem__(key)


class _ListView(Sequence[Any]):
    """A list of a space as functions see it: with sampled values."""

    def __init__(self, resolution: _Resolution, path: Path) -> None:
        self._resolution = resolution
        self._path = path

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        return self._resolution.read((*self._path, range(len(self))[position]))

    def __len__(self) -> int:
        return len(get_value(self._resolution.spec, self._path))


def evaluated_params(resolved: Mapping[Path, Any]) -> dict[str, Any]:
    """Return values by their paths as strings, as a trial records them."""
    return {format_path(path): value for path, value in resolved.items()}


_resolve_nested_dict = flatten
