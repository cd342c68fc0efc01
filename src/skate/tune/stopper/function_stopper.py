"""Stop trials with a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.tune.stopper.stopper import Stopper

__all__ = ["FunctionStopper"]


class FunctionStopper(Stopper):
    """Stop a trial when a function returns true for its result.

    Args:
        function: Called with the id of the trial and each of its results.

    Raises:
        TypeError: `function` cannot be called.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not callable(function):
            raise TypeError(f"FunctionStopper takes a function of (trial_id, result), not {function!r}.")
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return the result of the function."""
        return self._function(trial_id, result)

    def stop_all(self) -> bool:
        """Return False, because the function stops only single trials."""
        return False

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Return whether an object is a function that this class can wrap.

        Args:
            fn: The object, for example the value of `RunConfig(stop=)`.

        Raises:
            ValueError: The object has `stop_all`, but is not a `Stopper`.
        """
        if not callable(fn) or isinstance(fn, Stopper):
            return False
        if hasattr(fn, "stop_all"):
            raise ValueError(
                f"{fn!r} has stop_all() but is not a skate.tune.Stopper: derive its class from Stopper."
            )
        return True
