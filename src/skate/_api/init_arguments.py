"""Checks of the arguments of `init`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from skate._api.argument_errors import shown
from skate._base.labels import label_key_problem, label_value_problem

PREFLIGHTS: Final = ("raise", "warn", "off")

_TEXTS: Final = (
    "address", "engine", "dashboard_host", "logging_format", "namespace", "cgroup_path", "proxy_server_url",
    "preflight",
)  # fmt: skip
_DICTIONARIES: Final = ("resources", "labels", "runtime_env")
_NUMBERS: Final = ("num_cpus", "num_gpus", "system_reserved_cpu")
_HIGHEST_PORT: Final = 65535


def check(given: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for the first wrong argument; None is valid for each argument."""
    given = {name: value for name, value in given.items() if value is not None}
    for name in _TEXTS:
        if name in given and not isinstance(given[name], str | os.PathLike):
            raise TypeError(f"{name} must be a string, not {shown(given[name])}.")
    for name in _DICTIONARIES:
        if name in given and not isinstance(given[name], dict):
            raise TypeError(f"{name} must be a dict, not {shown(given[name])}.")
    for name in _NUMBERS:
        if name in given and not _is_amount(given[name]):
            raise ValueError(
                f"{name} must be a finite number that is not negative, not {shown(given[name])}."
            )
    _check_resources(given.get("resources", {}))
    _check_labels(given.get("labels", {}))
    for name in ("object_store_memory", "system_reserved_memory"):
        size = given.get(name, 1)
        if not _is_amount(size) or size < 1 or size != int(size):
            raise ValueError(f"{name} must be a positive number of bytes, not {shown(size)}.")
    port = given.get("dashboard_port", 0)
    if not isinstance(port, int) or not 0 <= port <= _HIGHEST_PORT:
        raise ValueError(f"dashboard_port must be an integer from 0 to {_HIGHEST_PORT}, not {shown(port)}.")
    folder = given.get("kwargs", {}).get("_temp_dir")
    if folder is not None and not os.path.isabs(folder):
        raise ValueError(f"_temp_dir must be an absolute path, not {shown(folder)}.")
    if given.get("address") == "ray://":
        raise ValueError(
            "address 'ray://' names no cluster: write ray://HOST:PORT, as in ray://head-node:10001."
        )
    if given.get("namespace") == "":
        raise ValueError(
            'A namespace cannot be the empty string "". Leave it out, or pass None, for a private namespace.'
        )
    if given.get("preflight", "raise") not in PREFLIGHTS:
        raise ValueError(f"preflight must be one of {', '.join(PREFLIGHTS)}, not {given['preflight']!r}.")
    modules = given.get("preload", [])
    if not isinstance(modules, list | tuple) or not all(isinstance(name, str) for name in modules):
        raise TypeError(f"preload must be a list of names of modules, not {shown(modules)}.")


# Resources with an argument of their own.
_ARGUMENTS = {
    "CPU": "num_cpus",
    "GPU": "num_gpus",
    "memory": "_memory",
    "object_store_memory": "object_store_memory",
}


def _check_resources(resources: dict[Any, Any]) -> None:
    for name, amount in resources.items():
        if name in _ARGUMENTS:
            raise ValueError(
                f"`{name}` cannot be a custom resource because it is one of the default resources. Use "
                f"{_ARGUMENTS[name]} instead of resources={{{name!r}: …}}."
            )
        if not _is_amount(amount):
            raise ValueError(
                f"The amount of resource {name!r} must be a number that is not negative, not {shown(amount)}."
            )


def _check_labels(labels: dict[Any, Any]) -> None:
    for key, value in labels.items():
        problem = label_key_problem(key) or label_value_problem(value)
        if problem:
            raise ValueError(problem)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")
