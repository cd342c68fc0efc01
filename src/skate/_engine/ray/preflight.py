"""Before a program runs on a cluster: what would make it fail there, all of it at once.

The functions and classes that the program has declared so far are looked at: whether they can be pickled, which modules
a worker needs to read them, and which resources they ask for. One small task then tells what the cluster has.
"""

from __future__ import annotations

import gc
import io
import platform
import sys
import types
import warnings
from collections.abc import Iterable
from typing import Any

import cloudpickle

from skate._base import exports
from skate._base.alias import real_ray
from skate._base.errors import PreflightError, RuntimeEnvSetupError
from skate._base.object_ref import ObjectRef
from skate._engine.ray.failures import translated

_SEEN_TO = frozenset(("skate", "ray", "cloudpickle", "__main__"))  # looked at apart, or pickled by value


def check(engine: Any, preflight: str) -> None:
    """Look for what would make the program fail on the cluster, and report it.

    Args:
        engine: Connected to the cluster.
        preflight: "raise" raises for what cannot work and warns of what has to wait; "warn" only warns; "off"
            does not look.

    Raises:
        PreflightError: The program cannot run there.
    """
    if preflight == "off":
        return
    gc.collect()  # what only a cycle holds, such as the frames of an old error, is no longer part of the program
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
    """Return the modules that workers import to read the program's code, and what cannot be pickled."""
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
    """Pickles into nowhere, and notes what would be imported where it is unpickled."""

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
    """Ask a worker for its versions, and to import what the program needs."""
    theirs = real_ray()
    # Pickled by value, as if the program had written it: a cluster may have no Skate to import it from.
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
    """Run on the cluster: tell the versions there, and which modules cannot be imported."""
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
    """Return a sentence for each function or class that no node of the cluster has room for."""
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
