"""Workers of datasets are forked from a process that has imported what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MODULE = "skate.data._preloaded"


def preloading(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a task or an actor whose worker starts with Arrow, pandas and this library imported.

    >>> preloading({"num_cpus": 2, "runtime_env": {"env_vars": {"A": "b"}}})
    {'num_cpus': 2, 'runtime_env': {'env_vars': {'A': 'b'}, 'preload': ['skate.data._preloaded']}}
    """
    environment = options.get("runtime_env") or {}
    modules = [_MODULE, *(environment.get("preload") or ())]
    return {**options, "runtime_env": {**environment, "preload": modules}}
