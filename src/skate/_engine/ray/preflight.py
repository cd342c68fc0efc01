"""Checks before a program runs on a cluster; they report all problems at once.

The checks examine the remote functions and actor classes declared so far: whether they can be pickled, which modules a
worker needs to unpickle them, and which resources they request. One small task reports what the cluster has.
"""

from __future__ import annotations

import gc
import io
import platform
import sys
import types
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import cloudpickle

from skate._base import exports
from skate._base.alias import real_ray
from skate._base.errors import PreflightError, RuntimeEnvSetupError
from skate._base.object_ref import ObjectRef
from skate._engine.ray.failures import translated

if TYPE_CHECKING:
    from skate._engine.ray.engine import RayEngine

_SEEN_TO = frozenset(("skate", "ray", "cloudpickle", "__main__"))  # checked separately, or pickled by value


def check(engine: RayEngine, preflight: str) -> None:
    """Report problems that would make the program fail on the cluster.

    Args:
        engine: Connected to the cluster.
        preflight: "raise" raises for problems and warns of work that has to wait; "warn" only warns; "off" skips
            the checks.

    Raises:
        PreflightError: The program cannot run on the cluster.
    """
    if preflight == "off":
        return
    gc.collect()  # drops functions that only a cycle refers to, such as the frames of an old error
    declared = list(exports.declared)
    modules, problems = _needed_modules(declared)
    problems += _cluster_problems(modules)
    waits = _too_large(declared, engine.nodes())
    if problems and preflight == "raise":
        raise PreflightError(problems + waits)
    if problems or waits:
        lines = (f"\n  - {line}" for line in problems + waits)
        warnings.warn("On the Ray cluster:" + "".join(lines), RuntimeWarning, stacklevel=5)


def _needed_modules(declared: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Return the modules that workers need to unpickle the program's code, and the problems with pickling it."""
    modules: set[str] = set()
    problems = []
    for each in declared:
        export = each._core.export
        reader = _ImportReader(io.BytesIO())
        try:
            reader.dump(export.target)
        except Exception as error:  # pickling runs arbitrary user code
            problems.append(exports.explain(export.target, export.name, error))
        modules |= reader.modules
    known = sys.stdlib_module_names | _SEEN_TO
    return sorted(name for name in modules if name.partition(".")[0] not in known), problems


class _ImportReader(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles without output, and records the modules that unpickling would import."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ObjectRef):
            return str, ("a reference",)
        if isinstance(obj, types.ModuleType):
            self.modules.add(obj.__name__)
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and isinstance(
            obj, (type, types.FunctionType, types.BuiltinFunctionType)
        ):
            self.modules.add(obj.__module__ or "builtins")
        return reduced


def _cluster_problems(modules: list[str]) -> list[str]:
    """Have a worker report its versions, and import the modules that the program needs."""
    theirs = real_ray()
    # Pickled by value, like a function of the program: a cluster may not have Skate.
    asked = types.FunctionType(_look.__code__, {"__builtins__": __builtins__}, "look")
    asked.__module__ = "__main__"
    task = theirs.remote(num_cpus=0, max_retries=0)(asked)
    try:
        found = theirs.get(task.remote(modules))
    except Exception as error:
        shown = translated(error)
        if isinstance(shown, RuntimeEnvSetupError):
            return [f"The runtime environment cannot be made there: {shown}"]
        raise shown from None
    problems = []
    python = platform.python_version()
    if found["python"].split(".")[:2] != python.split(".")[:2]:
        problems.append(
            f"Python is {found['python']} there and {python} here: run the program with Python "
            f"{'.'.join(found['python'].split('.')[:2])}, or build the cluster's image with {python}."
        )
    if found["ray"] != theirs.__version__:
        problems.append(
            f"Ray is {found['ray']} there and {theirs.__version__} here: pip install 'ray=={found['ray']}'."
        )
    missing = dict(found["missing"])
    if "skate" in missing:
        problems.append(
            f"Skate cannot be imported there ({missing.pop('skate')}): install it on the cluster, or ship it with "
            "runtime_env={'pip': ['skate']}."
        )
    problems += [
        f"Module {module!r}, which the program's functions need, cannot be imported there ({reason}): ship it with "
        "runtime_env={'working_dir': '.'}, or install it with runtime_env={'pip': […]}."
        for module, reason in missing.items()
    ]
    return problems


def _look(modules: list[str]) -> dict[str, Any]:
    """Return the versions and the modules that cannot be imported; this runs on the cluster."""
    import importlib
    import platform

    missing = {}
    for module in ["skate", *modules]:
        try:
            importlib.import_module(module)
        except BaseException as error:  # whatever a module does when it is imported
            missing[module] = f"{type(error).__name__}: {error}"
    version = importlib.import_module("ray").__version__
    return {"python": platform.python_version(), "ray": version, "missing": missing}


def _too_large(declared: Iterable[Any], nodes: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each function or class that requests more than any node has."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    waits = []
    for each in declared:
        asked = each._core.options.effective_resources
        if alive and not any(
            all(has.get(name, 0) >= amount for name, amount in asked.items()) for has in alive
        ):
            most = {name: max(has.get(name, 0) for has in alive) for name in asked}
            waits.append(
                f"{each._core.export.name} asks for {_amounts(asked)}, and no node has that (the most of each is "
                f"{_amounts(most)}): it waits until a node with that joins."
            )
    return sorted(set(waits))


def _amounts(resources: dict[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in sorted(resources.items())) + "}"
