"""The finder that maps `import ray` and its submodules to Skate."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from skate._base.alias import missing, names
from skate._base.alias.adoption import reach
from skate._base.alias.facade import ray

if TYPE_CHECKING:
    from importlib.metadata import Distribution


class RayFinder:
    """Finds `ray` and its submodules, unless the real Ray is in the process."""

    def __init__(self) -> None:
        self.stands_aside = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that loads a module of Ray from Skate; None for every other module.

        Raises:
            ModuleNotFoundError: Skate has no such module, and an import needs it.
        """
        if self.stands_aside or not names.is_ray(fullname):
            return None
        found = names.spec_behind(fullname)
        if found is not None:
            loader: Any = AliasLoader()  # not derived from importlib.abc.Loader, which is slow to import
            return ModuleSpec(
                fullname,
                loader,
                origin=found.origin,
                is_package=found.submodule_search_locations is not None,
            )
        if missing.is_import(sys._getframe(1)):
            raise missing.missing_module(fullname)
        return None

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """Return the distribution of Ray for `importlib.metadata`, unless Ray is installed."""
        from skate._base.alias.distribution import find_substitute

        return find_substitute(context)


def _keep_shadows(package: ModuleType, second_name: str) -> None:
    """Keep attributes of a package that have the names of its submodules: `serve.deployment` is a decorator.

    Importing such a submodule by its second name would replace the decorator as the package's attribute.
    """
    below = f"{package.__name__}."
    for name, module in list(sys.modules.items()):
        child = name.removeprefix(below)
        if name.startswith(below) and "." not in child and vars(package).get(child) not in (None, module):
            sys.modules[f"{second_name}.{child}"] = module


class AliasLoader:
    """Loads a module of Ray as the same module object of Skate, under a second name."""

    def __init__(self) -> None:
        self._spec: ModuleSpec | None = None
        self._class = ModuleType

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return Skate's module."""
        module = ray if spec.name == names.RAY else reach(spec.name)
        self._spec = module.__spec__
        self._class = type(module)
        _keep_shadows(module, spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec and class.

        importlib has replaced the spec by that of the second name, and its LazyLoader the class.
        """
        if self._spec is not None:  # else `ray` is reloaded, which has no code
            module.__spec__ = self._spec
            module.__class__ = self._class


# `importlib.util.find_spec` returns this spec once `ray` is imported, and callers load the module with it.
_spec: Any = ray.__spec__
_spec.loader = AliasLoader()
