"""The fields that structured logging adds to a log record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base.log_format import set_context_source
from skate._base.logging_config import LoggingConfig
from skate._engine.abc import EngineContext


def log_as(config: dict[str, Any], context: Callable[[], EngineContext | None]) -> None:
    """Configure the logging of this process for a job.

    Args:
        config: The result of `LoggingConfig.to_dict`.
        context: Returns the engine's context, or None if no engine is running.
    """
    LoggingConfig.from_dict(config).apply()
    set_context_source(lambda: _fields(context()))


def _fields(context: EngineContext | None) -> dict[str, Any]:
    if context is None:
        return {}
    fields: dict[str, Any] = {
        "job_id": context.job.hex(),
        "worker_id": context.worker.to_bytes(28, "big").hex(),
        "node_id": context.node.hex(),
    }
    if context.actor is not None:
        fields["actor_id"] = context.actor.id.hex()
        fields["actor_name"] = ""
    task = context.task
    if task is not None:
        fields["task_id"] = task.id.hex()
        fields["task_name"] = task.name
        fields["task_func_name"] = context.function_name
    return fields
