"""The key, the project and the hooks that environment variables give to Weights & Biases."""

from __future__ import annotations

import importlib
import logging
import os
from pathlib import Path
from typing import Any

log = logging.getLogger("skate.air")

API_KEY = "WANDB_API_KEY"
PROJECT = "WANDB_PROJECT_NAME"
GROUP = "WANDB_GROUP_NAME"
MODE = "WANDB_MODE"
API_KEY_HOOK = "WANDB_SETUP_API_KEY_HOOK"  # a function that returns the key
LOCATION_HOOK = "WANDB_POPULATE_RUN_LOCATION_HOOK"  # a function that sets the variables of project and group
RUN_HOOK = "WANDB_PROCESS_RUN_INFO_HOOK"  # a function that is called with each run


def read_key(api_key: str | None, api_key_file: str | None) -> str | None:
    """Return the key that is given as an argument or in a file, if there is one.

    Raises:
        ValueError: Both are given.
        OSError: The file cannot be read.
    """
    if api_key_file is None:
        return api_key
    if api_key is not None:
        raise ValueError("api_key and api_key_file are both given: give one of them")
    return Path(api_key_file).expanduser().read_text(encoding="utf-8").strip()


def authenticate(wandb: Any, key: str | None, mode: str | None) -> None:
    """Set the variable that wandb reads the key from, unless wandb needs none or has one.

    A key that is given takes precedence over the variable, this over an earlier `wandb login`, and this over the hook.

    Raises:
        ValueError: There is no key.
    """
    if (mode or os.environ.get(MODE)) in ("offline", "disabled"):
        return
    if key:
        os.environ[API_KEY] = key
    if os.environ.get(API_KEY) or _is_logged_in(wandb):
        return
    hook = os.environ.get(API_KEY_HOOK)
    found = _load(API_KEY_HOOK, hook)() if hook else None
    if not found:
        raise ValueError(
            f"there is no API key for Weights & Biases: set ${API_KEY}, give `api_key` or `api_key_file`, run "
            f"`wandb login`, or work without an account with {MODE}=offline"
        )
    os.environ[API_KEY] = found


def _is_logged_in(wandb: Any) -> bool:
    login = getattr(wandb, "login", None)
    if login is None:
        return False
    try:
        return bool(login(prompt=False, verify=False))
    except TypeError:  # an older version, whose login would ask for a key
        return bool(getattr(getattr(wandb, "api", None), "api_key", None))


def choose_project(project: str | None) -> str | None:
    """Return the project that is given, or that the environment or its hook names."""
    if project:
        return project
    hook = os.environ.get(LOCATION_HOOK)
    if hook and not os.environ.get(PROJECT):
        _load(LOCATION_HOOK, hook)()
    return os.environ.get(PROJECT)


def process_run(run: Any) -> None:
    """Call the hook for new runs; log its exception, since the run itself is in order."""
    hook = os.environ.get(RUN_HOOK)
    if hook:
        try:
            _load(RUN_HOOK, hook)(run)
        except Exception:
            log.exception("the hook $%s=%s failed for the run %s", RUN_HOOK, hook, run)


def _load(variable: str, path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"${variable} must be the path of a function, such as 'package.module.function', not {path!r}: {error}"
        ) from error
