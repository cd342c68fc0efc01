"""The function that each worker of an environment calls when it starts."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable
from typing import Any

from skate._base.errors import RuntimeEnvSetupError

_PICKLED = "pickle:"


def export_setup_hook(hook: str | Callable[[], Any]) -> str:
    """Return a hook as text: its dotted name, or the pickled function.

    Raises:
        RuntimeEnvSetupError: The function cannot be pickled.
    """
    if isinstance(hook, str):
        return hook
    import cloudpickle

    try:
        data = cloudpickle.dumps(hook)
    except Exception as error:  # pickling runs arbitrary user code
        raise RuntimeEnvSetupError(
            f"Failed to export the setup function. {hook!r} cannot be pickled: "
            f"{type(error).__name__}: {error}"
        ) from error
    return _PICKLED + base64.b64encode(data).decode("ascii")


def run_setup_hook(hook: str) -> None:
    """Call a hook that ``export_setup_hook`` returned.

    Raises:
        RuntimeEnvSetupError: The hook cannot be found or loaded, or it raised.
    """
    try:
        _load(hook)()
    except Exception as error:
        from skate._base.errors.rendering import render_exception

        shown = "the pickled function" if hook.startswith(_PICKLED) else hook
        raise RuntimeEnvSetupError(
            f"Failed to execute the setup hook method. worker_process_setup_hook is {shown}:\n"
            f"{render_exception(error)}"
        ) from error


def _load(hook: str) -> Callable[[], Any]:
    if hook.startswith(_PICKLED):
        import pickle

        function: Callable[[], Any] = pickle.loads(base64.b64decode(hook.removeprefix(_PICKLED)))
        return function
    module_name, _, name = hook.rpartition(".")
    if not module_name:
        raise ValueError(f"{hook!r} is not of the form 'module.function'")
    named: Callable[[], Any] = getattr(importlib.import_module(module_name), name)
    return named
