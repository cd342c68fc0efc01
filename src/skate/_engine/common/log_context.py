"""Where a log record comes from: the ids that structured logging adds to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base.log_format import set_context_source
from skate._base.logging_config import LoggingConfig
from skate._engine.common.names import function_name


def log_as(config: dict[str, Any], facts: Callable[[], dict[str, Any] | None]) -> None:
    """Log in this process as a job wants it.

    Args:
        config: What `LoggingConfig.to_dict` gave.
        facts: Returns the engine's context, with the task and the actor that are running; None without one.
    """
    LoggingConfig.from_dict(config).apply()
    set_context_source(lambda: _fields(facts()))


def _fields(facts: dict[str, Any] | None) -> dict[str, Any]:
    if facts is None:
        return {}
    fields = {
        "job_id": facts["job"].hex(),
        "worker_id": facts["worker"].to_bytes(28, "big").hex(),
        "node_id": facts["node"].hex(),
    }
    if facts["actor"] is not None:
        fields["actor_id"] = facts["actor"][0].hex()
        fields["actor_name"] = facts.get("actor_name") or ""
    task = facts["task"]
    if task is not None:
        fields["task_id"] = task.task.hex()
        fields["task_name"] = task.name
        fields["task_func_name"] = function_name(facts)
    return fields
