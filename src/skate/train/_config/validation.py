"""How checkpoints are validated beside the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from skate.train._storage.checkpoint import Checkpoint


class ValidationFn(Protocol):
    """A function that takes a checkpoint, and whatever `fn_kwargs` has, and returns metrics."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]:
        """Return the metrics of a checkpoint."""


@dataclass
class ValidationTaskConfig:
    """How one checkpoint is validated: `report(…, validation=ValidationTaskConfig(…))`.

    Args:
        fn_kwargs: Arguments for the function, besides the checkpoint. They are kept with the run, as JSON.
        timeout_s: Seconds after which the validation is given up; never if None.
    """

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self.fn_kwargs = dict(self.fn_kwargs or {})
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError(f"timeout_s is {self.timeout_s}: it must be None, or more than 0")


class ValidationConfig:
    """What validates checkpoints, in a task beside the training.

    Args:
        fn: Takes a checkpoint, and returns metrics, which are added to those that it was reported with.
        task_config: How to call it, where `report` does not say.
        ray_remote_kwargs: Options of the task: its resources, retries, environment.
    """

    def __init__(
        self,
        fn: ValidationFn,
        task_config: ValidationTaskConfig | None = None,
        ray_remote_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"fn must be a function that takes a checkpoint, not {type(fn).__name__}")
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = dict(ray_remote_kwargs or {})

    def arguments(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
        """Return the arguments and the time for one checkpoint.

        Args:
            wanted: What `report` said, as `as_wanted` has it.
        """
        arguments = {**(self.task_config.fn_kwargs or {}), **wanted.get("fn_kwargs", {})}
        return arguments, wanted.get("timeout_s", self.task_config.timeout_s)


def as_wanted(validation: bool | ValidationTaskConfig) -> dict[str, Any] | None:
    """Return what `report` was given, as it is kept with the run; None if nothing is to be validated.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(validation, ValidationTaskConfig):
        return {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    if not isinstance(validation, bool):
        raise TypeError(
            f"validation must be True, False or a ValidationTaskConfig, not {type(validation).__name__}"
        )
    return {} if validation else None
