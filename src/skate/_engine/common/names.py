"""Names of running functions, in Ray's spelling."""

from __future__ import annotations


def function_name(module: str, qualname: str, task_name: str, *, in_actor: bool, is_async: bool) -> str:
    """Return module and name of a running function or method.

    The enclosing scopes (`make.<locals>.`) are part of the name in asyncio actors only, as in Ray.

    Args:
        module: The module of the function or the actor class.
        qualname: The qualified name of the function or the actor class.
        task_name: The name of the task; that of an actor call ends with the method.
        in_actor: Whether an actor runs it.
        is_async: Whether that actor is asynchronous.
    """
    name = qualname if is_async else qualname.rsplit(".", 1)[-1]
    if in_actor:
        name = f"{name}.{task_name.rsplit('.', 1)[-1]}"
    return f"{module}.{name}"
