"""Equality of runtime environments for workers. Computed at every submission, so this module imports little."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from skate._base.runtime_envs.fields import CARRIED

# Fields without an effect on the worker.
_WITHOUT_EFFECT = CARRIED | {"config"}


def fingerprint(runtime_env: Mapping[str, Any] | None) -> str:
    """Return a text that is equal for environments that workers may share, and empty for no environment."""
    if not runtime_env:
        return ""
    fields = {
        name: value
        for name, value in runtime_env.items()
        if name not in _WITHOUT_EFFECT and value not in (None, {}, [])
    }
    if "working_dir" not in fields and "py_modules" not in fields:
        fields.pop("excludes", None)
    if "worker_process_setup_hook" in fields:
        from skate._engine.common.environments.hooks import export_setup_hook

        fields["worker_process_setup_hook"] = export_setup_hook(fields["worker_process_setup_hook"])
    if not fields:
        return ""
    text = json.dumps(fields, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
