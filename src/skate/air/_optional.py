"""Optional libraries: those of an extra, and those that are imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def load(module: str, for_what: str, package: str | None = None) -> Any:
    """Import and return a module that is not among Skate's requirements.

    Args:
        module: Its import name.
        for_what: The call that needs it, as the user wrote it, such as `read_avro`.
        package: The package to install; the top-level name of the module if not given.

    Raises:
        ImportError: It is not installed; the error names the package.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = package or module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name and module.startswith(error.name):
            raise ImportError(f"{for_what} needs {package}: pip install {package}", name=module) from None
        raise  # it is installed, and its own import fails: show that error


def require(module: str, for_what: str, package: str | None = None) -> None:
    """Check that a module is installed, without importing it, which may take seconds.

    Args:
        module: Its top-level import name.
        for_what: The call that needs it, as the user wrote it.
        package: The package to install; the name of the module if not given.

    Raises:
        ImportError: It is not installed; the error names the package.
    """
    if not _is_installed(module):
        raise ImportError(
            f"{for_what} needs {package or module}: pip install {package or module}", name=module
        )


def require_extra(extra: str, importer: str, *modules: str) -> None:
    """Check that the requirements of a part of Skate are installed, without importing them.

    Args:
        extra: The extra of Skate that installs them.
        importer: The part of Skate, as the user imports it.
        modules: The import names of the requirements.

    Raises:
        ImportError: Some are not installed; the error names them and the extra.
    """
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        raise ImportError(
            f"{importer} needs {' and '.join(missing)}: pip install 'skate[{extra}]'", name=missing[0]
        )


def _is_installed(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None
