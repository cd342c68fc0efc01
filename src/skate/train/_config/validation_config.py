"""The configuration of checkpoint validations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import skate
from skate.air import _arguments as arguments

if TYPE_CHECKING:
    from skate.train._storage.checkpoint import Checkpoint


class ValidationFn(Protocol):
    """A function that takes a checkpoint and the arguments in `fn_kwargs`, and returns metrics."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]:
        """Return the metrics of a checkpoint."""


@dataclass
class ValidationTaskConfig:
    """How to validate one checkpoint: `report(…, validation=ValidationTaskConfig(…))`.

    Args:
        fn_kwargs: Arguments for the function, besides the checkpoint. They are stored with the run as JSON.
        timeout_s: Seconds after which the validation is cancelled; None for no limit.
    """

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self.fn_kwargs = arguments.mapping("fn_kwargs", self.fn_kwargs)
        arguments.real("timeout_s", self.timeout_s, above_zero=True, unit="seconds", optional=True)


class ValidationConfig:
    """How to validate checkpoints, in tasks that run beside the training.

    Args:
        fn: Takes a checkpoint, and returns metrics, which are added to the reported ones.
        task_config: The default for reports with `validation=True`.
        ray_remote_kwargs: Options of the task: its resources, retries and environment.
    """

    def __init__(
        self,
        fn: ValidationFn,
        task_config: ValidationTaskConfig | None = None,
        ray_remote_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        arguments.function("fn", fn, "a function that takes a checkpoint")
        arguments.instance(
            "task_config", task_config, ValidationTaskConfig, "a ValidationTaskConfig", optional=True
        )
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = arguments.mapping("ray_remote_kwargs", ray_remote_kwargs)
        with arguments.naming("ray_remote_kwargs"):
            skate.remote(_nothing).options(**self.ray_remote_kwargs)

    def arguments(self, settings: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
        """Return the arguments and the time-out for one checkpoint.

        Args:
            settings: The settings of the report, as `validation_settings` returns them.
        """
        arguments = {**(self.task_config.fn_kwargs or {}), **settings.get("fn_kwargs", {})}
        return arguments, settings.get("timeout_s", self.task_config.timeout_s)


def _nothing() -> None:
    """Serve as the task with which the options are checked."""


def validation_settings(validation: bool | ValidationTaskConfig) -> dict[str, Any] | None:
    """Return the `validation` argument of `report` in the form that is stored with the run; None for False.

    Raises:
        TypeError: It is neither a bool nor a ValidationTaskConfig.
    """
    if isinstance(validation, ValidationTaskConfig):
        return {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    if not isinstance(validation, bool):
        arguments.refuse("validation", "True, False or a ValidationTaskConfig", validation)
    return {} if validation else None
