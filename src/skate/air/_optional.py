"""Libraries that not every program needs: those of an extra, and those that are loaded when they are used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def load(module: str, for_what: str, package: str | None = None) -> Any:
    """Return a module that is not part of Skate's own requirements.

    Args:
        module: Its import name.
        for_what: The call that needs it, as the user wrote it: `read_avro`.
        package: What to install; the top-level name of the module if not given.

    Raises:
        ImportError: It is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = package or module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            raise ImportError(f"{for_what} needs {package}: pip install {package}", name=module) from None
        raise  # it is there, and its own import fails: that is what the user has to see


def require(module: str, for_what: str, package: str | None = None) -> None:
    """See that a module is installed, without importing it: it may take seconds, and be needed elsewhere.

    Args:
        module: Its import name, of the top level.
        for_what: The call that needs it, as the user wrote it.
        package: What to install; the name of the module if not given.

    Raises:
        ImportError: It is not installed; says what to install.
    """
    if not _is_there(module):
        raise ImportError(
            f"{for_what} needs {package or module}: pip install {package or module}", name=module
        )


def require_extra(extra: str, importer: str, *modules: str) -> None:
    """See that what a part of Skate cannot be imported without is installed, without importing it.

    Args:
        extra: The extra of Skate that installs it.
        importer: The part of Skate, as the user imports it.
        modules: The import names of what it needs.

    Raises:
        ImportError: Some of it is not installed; names all that is missing, and says what to install.
    """
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        raise ImportError(
            f"{importer} needs {' and '.join(missing)}: pip install 'skate[{extra}]'", name=missing[0]
        )


def _is_there(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None
