"""Errors for names of Ray that Skate does not have."""

from __future__ import annotations

import importlib
import sys
from types import FrameType, ModuleType

from skate._base.alias import names
from skate._base.suggestions import closest

_OPCODE_BYTES = 2
_IMPORT_FROM = "IMPORT_FROM"


def missing_attribute(module: ModuleType, alias: str, name: str, asking: FrameType) -> Exception:
    """Return the error for a missing name of a module, of the type that the requesting code expects.

    Args:
        module: Skate's module.
        alias: Ray's name for it.
        name: The missing name.
        asking: The requesting frame. `from module import name` turns an AttributeError into an ImportError with
            Skate's
            name for the module and without help; it does not change other errors.
    """
    hint = _explanation(f"{alias}.{name}", module)
    if _is_from_import(asking):
        return ImportError(f"cannot import name {name!r} from {alias!r}. {hint}", name=alias)
    # With `name` and without `obj`, Python adds no second suggestion when it prints the error.
    return AttributeError(f"module {alias!r} has no attribute {name!r}. {hint}", name=name)


def missing_module(alias: str) -> ModuleNotFoundError:
    """Return the error for a module of Ray that Skate does not have."""
    above, _, name = alias.rpartition(".")
    parent = sys.modules.get(names.target_of(above) or "")
    if hasattr(parent, name):
        hint = f"{alias} exists, but is not a module: write `from {above} import {name}`."
    else:
        hint = _explanation(alias, parent)
    return ModuleNotFoundError(f"No module named {alias!r}. {hint}", name=alias)


def is_import(asking: FrameType | None) -> bool:
    """Return whether a finder is called for an import, and not only to check that a module exists.

    Args:
        asking: The frame that calls `find_spec` of the finder.
    """
    above = asking.f_back if asking is not None else None
    return above is not None and above.f_code.co_name == "_find_and_load_unlocked"


def _is_from_import(frame: FrameType) -> bool:
    import dis

    position = frame.f_lasti
    code = frame.f_code.co_code[position : position + _OPCODE_BYTES]
    return bool(code) and dis.opname[code[0]] == _IMPORT_FROM


def _explanation(wanted: str, parent: ModuleType | None) -> str:
    version = importlib.import_module(names.VERSIONS).__version__
    library = wanted.split(".")[1]
    if library in names.LIBRARIES and names.spec_behind(f"{names.RAY}.{library}") is None:
        return (
            f"Here `ray` is Skate {version}, and the library ray.{library} is not in this version of Skate. "
            f"The ray engine has it, where Ray is installed: skate run --engine ray, or {names.ENGINE}=ray."
        )
    close = closest(wanted.rpartition(".")[2], _public_names(parent))
    suggestion = "" if close is None else f"Did you mean {wanted.rpartition('.')[0]}.{close}? "
    return (
        f"{suggestion}Here `ray` is Skate {version}, which does not have it on any engine. If Ray does, run the "
        "program with Ray itself, without `skate run` and `skate.as_ray`."
    )


def _public_names(module: ModuleType | None) -> list[str]:
    import pkgutil

    if module is None:
        return []
    found = {name for name in dir(module) if not name.startswith("_")}
    found.update(getattr(module, "__all__", ()))
    for child in pkgutil.iter_modules(getattr(module, "__path__", ())):
        name = names.alias_of(f"{module.__name__}.{child.name}")
        if name is not None:
            found.add(child.name)
    return sorted(found)
