"""The mapping between module names of Ray and of Skate.

Public modules have the same path in both: `ray.util.queue` is `skate.util.queue`. Private modules of Ray are not an
API, but some packages use them. `INTERNALS` lists those with a simple and correct equivalent; the modules are in
`skate._api.ray_internals`, under the same path: `ray._raylet` is `skate._api.ray_internals._raylet`. To add one,
write the module with the required names, and list it and each package above it here. A public module of Ray that is
only a shell in Skate may be listed too. Private modules of a library are in that library, under their own path, and
in `INTERNALS_OF_LIBRARIES`.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

RAY = "ray"
SKATE = __name__.partition(".")[0]
VERSIONS = f"{SKATE}._version"
ENGINE = "SKATE_ENGINE"  # the variable that names the engine

INTERNALS = frozenset(
    (
        "ray._common",
        "ray._common.test_utils",
        "ray._private",
        "ray._private.internal_api",
        "ray._private.services",
        "ray._private.state",
        "ray._private.utils",
        "ray._private.worker",
        "ray._raylet",
        "ray._version",
        "ray.internal",
        "ray.util.client",
    )
)
# These are in the library that they belong to.
INTERNALS_OF_LIBRARIES = frozenset(
    (
        "ray.data._internal",
        "ray.data._internal.compute",
        "ray.data._internal.delegating_block_builder",
        "ray.data._internal.execution",
        "ray.data._internal.execution.interfaces",
        "ray.data._internal.util",
        "ray.serve._private",
        "ray.serve._private.common",
        "ray.train._internal",
        "ray.train._internal.session",
    )
)
_INTERNALS_HOME = f"{SKATE}._api.ray_internals"

# Older names of modules, which programs still use.
_MOVED = {
    "ray._private.test_utils": f"{_INTERNALS_HOME}._common.test_utils",
    "ray.experimental.state": f"{SKATE}.util.state",
    "ray.experimental.state.api": f"{SKATE}.util.state.api",
    "ray.experimental.state.common": f"{SKATE}.util.state.common",
    "ray.experimental.state.exception": f"{SKATE}.util.state.exception",
    "ray.state": f"{_INTERNALS_HOME}._private.state",
    "ray.worker": f"{_INTERNALS_HOME}._private.worker",
}

# Modules of Skate without a counterpart in Ray.
_OURS = frozenset((f"{SKATE}.as_ray", f"{SKATE}.cli"))

# Libraries of Ray; those that Skate has are found first.
LIBRARIES = frozenset(("air", "data", "llm", "rllib", "serve", "train", "tune", "workflow"))


def is_ray(name: str) -> bool:
    """Return whether a module name is `ray` or below it."""
    return name == RAY or name.startswith("ray.")


def target_of(name: str) -> str | None:
    """Return the name of Skate's module for one of Ray; None if there can be none.

    >>> target_of("ray.util.queue")
    'skate.util.queue'
    >>> target_of("ray._raylet")
    'skate._api.ray_internals._raylet'
    >>> print(target_of("ray._engine"), target_of("rays"))
    None None
    """
    if not is_ray(name):
        return None
    if name in _MOVED:
        return _MOVED[name]
    if name in INTERNALS:
        return _INTERNALS_HOME + name.removeprefix(RAY)
    parts = name.split(".")[1:]
    if name not in INTERNALS_OF_LIBRARIES and any(part.startswith("_") for part in parts):
        return None
    target = ".".join((SKATE, *parts))
    return None if any(target == own or target.startswith(f"{own}.") for own in _OURS) else target


def alias_of(target: str) -> str | None:
    """Return Ray's name for a module of Skate; None if Ray has none.

    >>> alias_of("skate.util.queue")
    'ray.util.queue'
    >>> print(alias_of("skate._engine.holder"))
    None
    """
    for home in (_INTERNALS_HOME, SKATE):
        name = RAY + target.removeprefix(home)
        if target.startswith(f"{home}.") and target_of(name) == target:
            return name
    return RAY if target == SKATE else None


def spec_behind(name: str) -> ModuleSpec | None:
    """Return the spec of Skate's module for one of Ray; None if there is none."""
    target = target_of(name)
    if target is None:
        return None
    try:
        return importlib.util.find_spec(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # a package above it exists, but an import inside it failed
        return None
