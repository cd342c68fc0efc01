"""Helpers for programs that use Tune."""

from __future__ import annotations

import datetime
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import skate
from skate.air import _optional
from skate.tune._workers.output import Tee
from skate.tune.result import TRAINING_ITERATION
from skate.tune.search._space import unflatten
from skate.tune.trainable.trainable import Trainable
from skate.util import inspect_serializability

__all__ = [
    "Tee",
    "date_str",
    "diagnose_serialization",
    "flatten_dict",
    "retry_fn",
    "unflatten_dict",
    "validate_save_restore",
    "validate_warmstart",
    "wait_for_gpu",
    "warn_if_slow",
]

logger = logging.getLogger("skate.tune")


def date_str() -> str:
    """Return the current local time, as it is used in names of folders."""
    return f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"


def retry_fn(
    fn: Callable[[], Any],
    exception_type: type[Exception] | Sequence[type[Exception]] = Exception,
    num_retries: int = 3,
    sleep_time: float = 1,
    timeout: float | None = None,
) -> bool:
    """Call a function until it succeeds. Return whether it has succeeded.

    Args:
        fn: The function.
        exception_type: The exceptions after which it is called again.
        num_retries: The maximum number of calls.
        sleep_time: The delay between two calls in seconds.
        timeout: The time in seconds after which a call counts as failed; its thread continues. None for no limit.
    """
    kinds = exception_type if isinstance(exception_type, type) else tuple(exception_type)
    for attempt in range(num_retries):
        if attempt:
            time.sleep(sleep_time)
        returned = threading.Event()

        def call(returned: threading.Event = returned) -> None:
            try:
                fn()
            except kinds as error:
                logger.warning("%s", error)
            else:
                returned.set()

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(timeout)
        if returned.is_set():
            return True
    return False


class warn_if_slow:  # noqa: N801  # Ray's name
    """A context manager that logs a warning if its block takes long.

    Args:
        name: What the block does, for the message.
        threshold: The time in seconds above which to warn; by default, `$TUNE_WARN_THRESHOLD_S` or 0.5.
        message: The message, in which `{name}` and `{duration}` are replaced.
        disable: Whether to log nothing.
    """

    DEFAULT_THRESHOLD = float(os.environ.get("TUNE_WARN_THRESHOLD_S", "0.5"))
    DEFAULT_MESSAGE = (
        "`{name}` took {duration:.3f} s. It delays all trials, and so may be a performance bottleneck."
    )

    def __init__(
        self, name: str, threshold: float | None = None, message: str | None = None, disable: bool = False
    ) -> None:
        self.name = name
        self.threshold = self.DEFAULT_THRESHOLD if threshold is None else threshold
        self.message = message or self.DEFAULT_MESSAGE
        self.disable = disable
        self.too_slow = False

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        duration = time.monotonic() - self._start
        if not self.disable and duration > self.threshold:
            self.too_slow = True
            logger.warning("%s", self.message.format(name=self.name, duration=duration))


def flatten_dict(
    dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[str, Any]:
    """Return nested dictionaries as one, whose names are the paths of the values.

    Args:
        dt: The dictionaries.
        delimiter: The separator of the names in a path.
        prevent_delimiter: Whether to check that no name contains the delimiter.
        flatten_list: Whether to flatten lists as well; their indices become names.

    Raises:
        ValueError: A name contains the delimiter, and `prevent_delimiter` is true.

    Example:
        >>> flatten_dict({"optimizer": {"lr": 0.1}, "layers": 2})
        {'optimizer/lr': 0.1, 'layers': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        name = str(key)
        if prevent_delimiter and delimiter in name:
            raise ValueError(f"The name {name!r} contains the delimiter {delimiter!r}: rename it.")
        if flatten_list and isinstance(value, list):
            value = {str(index): each for index, each in enumerate(value)}
        if isinstance(value, dict):
            nested = flatten_dict(value, delimiter, prevent_delimiter, flatten_list)
            flat.update({f"{name}{delimiter}{path}": each for path, each in nested.items()})
        else:
            flat[name] = value
    return flat


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return nested dictionaries of values by their paths: the inverse of `flatten_dict`, except for lists.

    Raises:
        TypeError: A path continues the path of a value that is not a dictionary.

    Example:
        >>> unflatten_dict({"optimizer/lr": 0.1, "layers": 2})
        {'optimizer': {'lr': 0.1}, 'layers': 2}
    """
    return unflatten(dt, delimiter)


def diagnose_serialization(trainable: Any) -> bool | set[str]:
    """Return whether a trainable can be sent to workers, and print the parts that cannot.

    Args:
        trainable: A function or a class.

    Returns:
        True, or the names of the parts that cannot be serialized.
    """
    serializable, failures = inspect_serializability(trainable)
    return True if serializable else {failure.name for failure in failures}


def validate_save_restore(
    trainable_cls: type[Trainable], config: dict[str, Any] | None = None, num_gpus: float = 0
) -> bool:
    """Check that a trainable class continues from its own checkpoints in another process, and return True.

    Args:
        trainable_cls: The class.
        config: Its configuration.
        num_gpus: The GPUs of each process.

    Raises:
        ValueError: A step, or the first step after a checkpoint, has an unexpected number.
    """
    actor = skate.remote(num_gpus=num_gpus)(trainable_cls)
    first, second = actor.remote(config=config), actor.remote(config=config)
    for step in range(1, 4):
        _check_step(skate.get(first.train.remote()), step)
    skate.get(second.restore.remote(first.save.remote()))
    for step in range(4, 6):
        _check_step(skate.get(second.train.remote()), step)
    return True


def _check_step(result: Mapping[str, Any], step: int) -> None:
    found = result.get(TRAINING_ITERATION)
    if found != step:
        raise ValueError(f"the result of step {step} has {TRAINING_ITERATION}={found!r}: {dict(result)}")


def validate_warmstart(
    parameter_names: Sequence[str],
    points_to_evaluate: Sequence[Sequence[Any] | Mapping[str, Any]] | None,
    evaluated_rewards: Sequence[float] | None,
    validate_point_name_lengths: bool = True,
) -> None:
    """Check the points that a search starts with.

    Args:
        parameter_names: The parameters of the search space.
        points_to_evaluate: The points: values by parameter, or in the order of the parameters.
        evaluated_rewards: The values of the points, if they are known.
        validate_point_name_lengths: Whether each point must have all parameters.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A point has too few or too many parameters, or the number of values differs.
    """
    for name, given in (("points_to_evaluate", points_to_evaluate), ("evaluated_rewards", evaluated_rewards)):
        if given and not isinstance(given, list):
            raise TypeError(f"`{name}` must be a list, not {type(given).__name__}.")
    for point in points_to_evaluate or ():
        if not isinstance(point, dict | list):
            raise TypeError(f"`points_to_evaluate` has {point!r}: each point must be a dictionary or a list.")
        if validate_point_name_lengths and len(point) != len(parameter_names):
            raise ValueError(
                f"`points_to_evaluate` has {point!r}: each point must have the parameters {list(parameter_names)}."
            )
    if points_to_evaluate and evaluated_rewards and len(points_to_evaluate) != len(evaluated_rewards):
        raise ValueError(
            f"`evaluated_rewards` has {len(evaluated_rewards)} values for {len(points_to_evaluate)} points: give one "
            "value for each point."
        )


def wait_for_gpu(
    gpu_id: int | str | None = None,
    target_util: float = 0.01,
    retry: int = 20,
    delay_s: float = 5,
    gpu_memory_limit: float | None = None,
) -> bool:
    """Wait until the memory of a GPU is free, because another process may release it late, and return True.

    Args:
        gpu_id: The number or the UUID of the GPU; by default, the first GPU of this task or actor.
        target_util: The fraction of its memory that may be in use.
        retry: The maximum number of checks.
        delay_s: The delay between two checks in seconds.
        gpu_memory_limit: Has no effect; accepted for programs written for Ray.

    Raises:
        ImportError: nvidia-ml-py is not installed.
        RuntimeError: This task or actor has no GPU, or the memory is still in use.
    """
    nvml = _optional.load("pynvml", "wait_for_gpu", "nvidia-ml-py")
    if gpu_id is None:
        own = skate.get_gpu_ids()
        if not own:
            raise RuntimeError("wait_for_gpu() finds no GPU: request one with tune.with_resources().")
        gpu_id = own[0]
    nvml.nvmlInit()
    try:
        if isinstance(gpu_id, str) and not gpu_id.isdigit():
            device = nvml.nvmlDeviceGetHandleByUUID(gpu_id)
        else:
            device = nvml.nvmlDeviceGetHandleByIndex(int(gpu_id))
        for attempt in range(retry):
            if attempt:
                time.sleep(delay_s)
            memory = nvml.nvmlDeviceGetMemoryInfo(device)
            if memory.used / memory.total <= target_util:
                return True
    finally:
        nvml.nvmlShutdown()
    raise RuntimeError(
        f"{memory.used / memory.total:.0%} of the memory of GPU {gpu_id} is in use after {retry} checks; "
        f"`target_util` is {target_util}."
    )
