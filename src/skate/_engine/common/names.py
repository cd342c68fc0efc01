"""Names of what is running, in Ray's spelling."""

from __future__ import annotations

from typing import Any


def function_name(facts: dict[str, Any]) -> str | None:
    """Return module and name of the function or method that is running; None outside of tasks.

    What encloses the function or class (`make.<locals>.`) is part of the name in asyncio actors alone, as in Ray.
    `facts` are what the engine's `context` returned.
    """
    task = facts["task"]
    if task is None or task.template is None:
        return None
    name: str = task.template.qualname
    if not facts["is_async_actor"]:
        name = name.rsplit(".", 1)[-1]
    if facts["actor"] is not None:
        name = f"{name}.{task.name.rsplit('.', 1)[-1]}"
    return f"{task.template.module}.{name}"
