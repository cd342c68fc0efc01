"""The error for waiting on something that can never happen."""

from __future__ import annotations

from collections.abc import Sequence

from skate._base import errors as exceptions
from skate._base.errors.task import root_cause

_RULE = (
    "The inline engine runs everything in the thread that asks: a task runs to its end inside `.remote()`, and "
    "an actor runs one call after the other. So a task cannot wait for what its caller does after `.remote()`, "
    "nor an actor for a call of its own. Do that first, or run the program with the local engine."
)


def would_wait_forever(what: str, reasons: Sequence[str]) -> exceptions.DeadlockError:
    """Return the error for waiting on `what`, with the chain of what it waits for."""
    lines = [
        f"{what} would wait forever, a deadlock: nothing is left in this process that could make it ready."
    ]
    lines += [f"  {reason}" for reason in reasons]
    return exceptions.DeadlockError("\n".join([*lines, _RULE]))


def is_deadlock(error: BaseException) -> bool:
    """Tell whether an error is a deadlock, here or in a task below: running it again would not help."""
    return isinstance(root_cause(error), exceptions.DeadlockError)
