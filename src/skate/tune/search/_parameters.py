"""Parameters of a search space as optimization libraries see them: a flat list of named domains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from skate._base.suggestions import did_you_mean
from skate.tune.search._space import Path, check_constants, domains, format_path, has_domains
from skate.tune.search.sample import Categorical, Domain, Float, Integer, Quantized, Sampler


class Parameter(NamedTuple):
    """A domain of a search space.

    Attributes:
        name: The path as text, such as `optimizer/lr`.
        path: The path of the domain in the space.
        domain: The domain.
        sampler: The distribution, before it is quantized.
        q: The quantization, or None.
    """

    name: str
    path: Path
    domain: Domain
    sampler: Sampler
    q: float | None

    @property
    def last(self) -> Any:
        """The greatest integer of an integer domain, whose upper bound is exclusive unless it is quantized."""
        upper = self.domain.upper  # type: ignore[attr-defined]
        return upper if self.q else upper - 1

    def project(self, value: Any) -> Any:
        """Return the value of the domain that is nearest to a suggestion of a library."""
        if isinstance(self.domain.sampler, Quantized):
            return self.domain.sampler.round(self.domain, value)
        if isinstance(self.domain, Integer):
            return min(max(round(float(value)), self.domain.lower), self.domain.upper - 1)
        if isinstance(self.domain, Float):
            return min(max(float(value), self.domain.lower), self.domain.upper)
        return to_builtin(value)


def to_builtin(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, and any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def list_parameters(
    space: Mapping[str, Any], library: str, *, nested_choices: bool = False
) -> list[Parameter]:
    """Return the parameters of a search space.

    Args:
        space: The space.
        library: The name of the library, for error messages.
        nested_choices: Whether the values of choices may contain domains.

    Raises:
        ValueError: The library cannot express a value of the space; the error has its path and type.
    """
    check_constants(space)
    found: dict[str, Parameter] = {}
    for path, domain in domains(space):
        name = format_path(("config", *path))
        if any("/" in str(part) for part in path):
            raise ValueError(
                f"A key at {name!r} contains a slash, which separates keys in the names of parameters: rename it."
            )
        if domain.is_grid():
            raise ValueError(
                f"{library} cannot express the grid search at {name!r}. "
                "Use tune.choice(), or BasicVariantGenerator to try every value."
            )
        if domain.is_function():
            raise ValueError(
                f"{library} cannot express the function at {name!r}, since its values have no known distribution. "
                "Use a function such as tune.uniform(), or compute the value in the trainable."
            )
        if isinstance(domain, Categorical) and not nested_choices and has_domains(domain.categories):
            raise ValueError(
                f"{library} cannot express the choice at {name!r}, whose values contain domains."
            )
        if name in found:
            raise ValueError(
                f"Two parameters have the name {name!r}: one key is a number, another is the same number as a string."
            )
        sampler = domain.get_sampler()
        quantized = isinstance(sampler, Quantized)
        found[name] = Parameter(
            name,
            path,
            domain,
            sampler.sampler if isinstance(sampler, Quantized) else sampler,
            sampler.q if quantized else None,  # type: ignore[attr-defined]
        )
    return list(found.values())


def unsupported(library: str, parameter: Parameter, remedy: str = "") -> ValueError:
    """Return the error for a parameter that a library cannot express."""
    return ValueError(
        f"{library} cannot express the parameter {parameter.name!r} of the type {type(parameter.domain).__name__} "
        f"with the distribution {parameter.domain.get_sampler()}.{remedy and ' '}{remedy}"
    )


def flatten_point(point: Any, names: Iterable[str] | None, constants: Iterable[str] = ()) -> dict[str, Any]:
    """Return the values of a point by the names of parameters.

    Args:
        point: Nested values, or values by names such as `optimizer/lr`.
        names: The names of the parameters; None if they are unknown, so that all keys are accepted.
        constants: Names of constants of the space, whose values are ignored.

    Raises:
        TypeError: The point is not a dict.
        ValueError: The point has an unknown key.
    """
    if not isinstance(point, Mapping):
        raise TypeError(f"points_to_evaluate must be a list of dicts, got {point!r}.")
    if names is None:
        return dict(point)
    flat: dict[str, Any] = {}
    _collect(point, (), list(names), list(constants), flat)
    return flat


def _collect(value: Any, path: Path, names: list[str], constants: list[str], flat: dict[str, Any]) -> None:
    name = format_path(("config", *path)) if path else ""
    if name in names:
        flat[name] = value
    elif isinstance(value, Mapping) and (value or not path):
        for key, each in value.items():
            _collect(each, (*path, key), names, constants, flat)
    elif isinstance(value, list | tuple) and any(known.startswith(f"{name}/") for known in names):
        for position, each in enumerate(value):
            _collect(each, (*path, position), names, constants, flat)
    elif not any(known == name or known.startswith(f"{name}/") for known in constants):
        raise ValueError(
            f"points_to_evaluate has the key {name!r}, which the search space does not have."
            f"{did_you_mean(name, names)} Its parameters are {names}."
        )
