"""What a driver inherits when it was submitted as a job: an environment and metadata, in a variable."""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "SKATE_SUBMITTED_JOB"


def describe(runtime_env: dict[str, Any], metadata: dict[str, str]) -> str:
    """Return the variable's value for a job."""
    return json.dumps({"runtime_env": runtime_env, "metadata": metadata})


def inherit(runtime_env: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a driver's environment and metadata, with what its submission has asked for underneath."""
    text = os.environ.get(VARIABLE)
    if not text:
        return runtime_env, metadata
    from skate._base.runtime_envs.inheritance import merge

    submitted = json.loads(text)
    return dict(merge(submitted["runtime_env"], runtime_env)), {**submitted["metadata"], **metadata}
