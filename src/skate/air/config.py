"""The configuration of a run: its workers, its storage, and its handling of failures."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skate.air import _arguments as arguments
from skate.runtime_env import RuntimeEnv
from skate.util.annotations import RayDeprecationWarning

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = [
    "CheckpointConfig",
    "FailureConfig",
    "LoggingConfig",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
]

DEFAULT_STORAGE = "~/skate_results"
STORAGE_VARIABLE = "SKATE_STORAGE_PATH"
_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_UNSET: Any = "DEPRECATED"  # the default of deprecated parameters in Ray's signatures


@dataclass
class ScalingConfig:
    """The number and the resources of the workers.

    Args:
        trainer_resources: Accepted and ignored: the controller of a run needs no resources.
        num_workers: The number of workers; `(fewest, most)` for an elastic run, whose number may change; 0 to run the
            training function in this process, where a debugger can stop it.
        use_gpu: Whether each worker has a GPU.
        resources_per_worker: The resources of each worker; one CPU, or one GPU, if not given.
        placement_strategy: How workers are placed on nodes: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        accelerator_type: The required type of GPU.
        label_selector: Labels of the nodes that workers may run on, for all workers or for each.
        use_tpu: Whether each worker has TPUs.
        topology: The shape of a TPU slice.
        elastic_resize_monitor_interval_s: Seconds between two checks whether an elastic run can grow.

    In the `param_space` of a Tuner, arguments may be search values such as `tune.grid_search([1, 2])`.

    Example:
        >>> ScalingConfig(num_workers=2, resources_per_worker={"CPU": 4}).total_resources
        {'CPU': 8.0}
    """

    trainer_resources: dict[str, float] | None = None
    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: dict[str, str] | list[dict[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        if arguments.has_search_values(list(vars(self).values())):
            return  # in the search space of a Tuner, which creates one for each trial
        self._check_workers()
        for name in ("use_gpu", "use_tpu"):
            arguments.flag(name, getattr(self, name))
        for name in ("accelerator_type", "topology"):
            arguments.text(name, getattr(self, name), optional=True)
        arguments.choice("placement_strategy", self.placement_strategy, _STRATEGIES)
        arguments.real(
            "elastic_resize_monitor_interval_s", self.elastic_resize_monitor_interval_s, unit="seconds"
        )
        for resource, amount in arguments.mapping("resources_per_worker", self.resources_per_worker).items():
            arguments.text(
                f"resources_per_worker[{resource!r}]", resource, "the name of a resource, a string,"
            )
            arguments.real(f"resources_per_worker[{resource!r}]", amount)
        self._check_labels()
        self._check_accelerators()
        _warn_of("ScalingConfig", trainer_resources=self.trainer_resources)

    def _check_workers(self) -> None:
        given = self.num_workers
        must = "a non-negative integer, or a pair of them: (fewest, most)"
        if not isinstance(given, tuple | list):
            self.num_workers = arguments.whole("num_workers", given, must=must, error=ValueError)
            return
        if len(given) != 2:
            arguments.refuse("num_workers", must, given, ValueError)
        for number in given:
            try:
                arguments.whole("num_workers", number)
            except (TypeError, ValueError):
                arguments.refuse("num_workers", must, given, ValueError)
        if given[0] > given[1]:
            raise ValueError(f"`num_workers` is {given}: the first number must not exceed the second.")

    def _check_labels(self) -> None:
        selectors = self.label_selector
        must = "a dictionary of strings, or a list of one for each worker"
        if selectors is None:
            return
        for selector in selectors if isinstance(selectors, list) else [selectors]:
            if not isinstance(selector, Mapping):
                arguments.refuse("label_selector", must, selectors)
            if not all(isinstance(word, str) for pair in selector.items() for word in pair):
                arguments.refuse("label_selector", must, selectors)
        if isinstance(selectors, list) and len(selectors) != self.max_workers:
            raise ValueError(
                f"`label_selector` has {len(selectors)} selectors for up to {self.max_workers} workers: give each "
                "worker one, or one dictionary for all."
            )

    def _check_accelerators(self) -> None:
        given = self.resources_per_worker or {}
        if given.get("GPU") and not self.use_gpu:
            raise ValueError(
                f"`use_gpu` is False but `GPU` was found in the resources of a worker, {given}: set use_gpu=True, or "
                "remove it."
            )
        if self.accelerator_type and not (self.use_gpu or self.use_tpu):
            raise ValueError(
                f"`accelerator_type` is {self.accelerator_type!r}, but neither use_gpu nor use_tpu is set: set one of "
                "them."
            )
        if self.use_gpu and self.use_tpu:
            raise ValueError("Cannot specify both use_gpu and use_tpu: a worker has one kind of accelerator.")
        self._check_tpus()

    def _check_tpus(self) -> None:
        """Check that the workers fill whole slices of TPUs, as the chips of a slice are connected."""
        given = (self.resources_per_worker or {}).get("TPU")
        if not self.use_tpu:
            if given:
                raise ValueError(
                    "`use_tpu` is False but `TPU` was found in the resources of a worker, "
                    f"{self.resources_per_worker}: set use_tpu=True, or remove it."
                )
            return
        if given == 0:
            raise ValueError(
                "`use_tpu` is True but resources_per_worker has 0 `TPU`: give each worker at least one."
            )
        if self.label_selector:
            raise ValueError(
                "Cannot set `label_selector` when `use_tpu=True`: the nodes of a TPU slice are chosen by its topology."
            )
        if self.max_workers <= 1:
            return
        if not self.topology or not self.accelerator_type:
            missing = "`topology`" if not self.topology else "`accelerator_type`"
            raise ValueError(
                f"{missing} must be specified when `use_tpu=True` and there are several workers: they must fill "
                "whole slices."
            )
        try:
            chips = math.prod(int(side) for side in self.topology.lower().split("x"))
        except ValueError:
            raise ValueError(f"`topology` must be like '2x4' or '2x2x2', got {self.topology!r}.") from None
        in_slice = max(1, int(chips // (given or 1)))
        for name, workers in (("min_workers", self.min_workers), ("max_workers", self.max_workers)):
            if workers % in_slice:
                raise ValueError(
                    f"`num_workers` is {self.num_workers}, and {name} must be a multiple of {in_slice}: a slice of "
                    f"topology {self.topology} has {in_slice} workers with {given or 1:g} TPU each."
                )

    @property
    def min_workers(self) -> int:
        """The fewest workers to train with."""
        return self.num_workers if isinstance(self.num_workers, int) else self.num_workers[0]

    @property
    def max_workers(self) -> int:
        """The most workers to train with."""
        return self.num_workers if isinstance(self.num_workers, int) else self.num_workers[1]

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the number of workers may change."""
        return not isinstance(self.num_workers, int)

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker, without zeros."""
        bundle: dict[str, float] = dict(self.resources_per_worker or {})
        if self.resources_per_worker is None and not self.use_gpu and not self.use_tpu:
            bundle["CPU"] = 1
        if self.use_gpu:
            bundle.setdefault("GPU", 1)
        if self.use_tpu:
            bundle.setdefault("TPU", 1)
        if self.accelerator_type:
            bundle.setdefault(f"accelerator_type:{self.accelerator_type}", 0.001)
        return {name: amount for name, amount in bundle.items() if amount}

    @property
    def total_resources(self) -> dict[str, float]:
        """The resources of all workers, for the largest number of workers."""
        return {name: float(amount) * self.max_workers for name, amount in self.bundle.items()}

    @property
    def num_cpus_per_worker(self) -> float:
        """The CPUs of one worker."""
        return self.bundle.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """The GPUs of one worker."""
        return self.bundle.get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """The TPUs of one worker."""
        return self.bundle.get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """The resources of one worker besides CPUs, GPUs and TPUs."""
        return {name: amount for name, amount in self.bundle.items() if name not in ("CPU", "GPU", "TPU")}


@dataclass
class FailureConfig:
    """How a run handles failures.

    Args:
        max_failures: How many failures the run recovers from; -1 for no limit.
        fail_fast: For `Tuner`; a trainer ignores it.
        controller_failure_limit: How often starting the workers may fail; -1 for no limit.
        max_preemption_failures: How often nodes may be preempted; -1 for no limit.
        relax_collectives_on_preemption: Accepted and ignored: Skate's nodes are not preempted.
        preemption_grace_s: Accepted and ignored: Skate's nodes are not preempted.
        hang_timeout_s: Seconds without a report or another message from any worker after which the run hangs. A hang is
            a failure, whose error names the workers that others wait for and the line that each is in. None for no
            limit. Not in Ray.
        upload_timeout_s: After a failure, seconds without progress after which an unfinished checkpoint upload is
            abandoned; the run then resumes from the previous checkpoint. Not in Ray.
    """

    max_failures: int = 0
    fail_fast: bool | str = _UNSET
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0
    hang_timeout_s: float | None = None
    upload_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
            arguments.whole(
                name, getattr(self, name), low=-1, must="a non-negative integer, or -1 for no limit"
            )
        arguments.flag("relax_collectives_on_preemption", self.relax_collectives_on_preemption)
        arguments.real("preemption_grace_s", self.preemption_grace_s, unit="seconds")
        arguments.real("hang_timeout_s", self.hang_timeout_s, above_zero=True, unit="seconds", optional=True)
        arguments.real("upload_timeout_s", self.upload_timeout_s, unit="seconds")


@dataclass
class CheckpointConfig:
    """Which checkpoints of a run are kept.

    Args:
        num_to_keep: How many; None for all. The latest is always kept, to resume from.
        checkpoint_score_attribute: The metric by which the best are kept; None to keep the latest.
        checkpoint_score_order: Whether the best have the highest ("max") or the lowest ("min") score.
        checkpoint_frequency: The number of rounds between two checkpoints of a trainer without a training function. A
            training function decides itself, with `report(…, checkpoint=…)`.
        checkpoint_at_end: Whether a trainer without a training function reports its model at the end.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int | str | None = _UNSET
    checkpoint_at_end: bool | str | None = _UNSET

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            arguments.whole("num_to_keep", self.num_to_keep, low=1, must="a positive integer or None")
        arguments.text("checkpoint_score_attribute", self.checkpoint_score_attribute, optional=True)
        arguments.choice("checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        if self.checkpoint_frequency is not None and self.checkpoint_frequency != _UNSET:
            arguments.whole("checkpoint_frequency", self.checkpoint_frequency)
        if self.checkpoint_at_end != _UNSET:
            arguments.flag("checkpoint_at_end", self.checkpoint_at_end)

    @property
    def asked_of_trainer(self) -> list[str]:
        """The settings that apply only to trainers without a training function."""
        asked = {
            "checkpoint_frequency": self.checkpoint_frequency,
            "checkpoint_at_end": self.checkpoint_at_end,
        }
        return [name for name, value in asked.items() if value and value is not _UNSET]


@dataclass
class SyncConfig:
    """When the results of an experiment of Tune are uploaded, if its storage is not a local disk.

    Checkpoints are stored when they are reported, and runs of trainers ignore this configuration.

    Args:
        sync_period: Seconds between two uploads, at most. A reported checkpoint also starts one.
        sync_timeout: Seconds to wait for the last upload when the experiment ends.
        sync_artifacts: Accepted for programs written for Ray; all files in the folder of a trial are uploaded.
        sync_artifacts_on_checkpoint: Accepted for programs written for Ray; has no effect.
    """

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True

    def __post_init__(self) -> None:
        for name in ("sync_period", "sync_timeout"):
            arguments.real(name, getattr(self, name), unit="seconds")
        for name in ("sync_artifacts", "sync_artifacts_on_checkpoint"):
            arguments.flag(name, getattr(self, name))


@dataclass
class LoggingConfig:
    """The log of a run.

    Args:
        log_level: The lowest level to log: "DEBUG", "INFO" (which includes the start and the end of a run), "WARNING",
            "ERROR" or "CRITICAL". It applies to Skate's own messages in the process that calls `fit`, not to the logs
            of the training function.
    """

    log_level: str = "INFO"

    def __post_init__(self) -> None:
        known = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
        if not isinstance(self.log_level, str) or self.log_level.upper() not in known:
            raise ValueError(
                f"Invalid log_level: {arguments.shown(self.log_level)}. It must be {arguments.one_of(known)}."
            )
        self.log_level = self.log_level.upper()


class RunCallback:
    """The base of the objects in `RunConfig(callbacks=[…])`; each library defines its events in a subclass."""

    def _run_ended(self, run_context: Any, error: BaseException | None) -> None:
        """Called after the run has ended, with or without an error."""


@dataclass
class RunConfig:
    """The name and the storage of a run, and how it handles failures and checkpoints.

    Args:
        name: The name of the run and of its folder below `storage_path`, which may be nested, such as `a/b`. A second
            run with the same name and storage resumes from the latest checkpoint of the first.
        storage_path: The folder of all runs: a local path, `s3://…` or `gs://…`. The default is `$SKATE_STORAGE_PATH`
            or `~/skate_results`.
        storage_filesystem: A pyarrow or fsspec filesystem for that path.
        failure_config: How the run handles failures.
        checkpoint_config: Which checkpoints are kept.
        callbacks: Objects that receive the events of the run.
        worker_runtime_env: The runtime environment of the workers.
        logging_config: The log of the run.
        sync_config: Accepted and ignored.
        verbose: For `Tuner`; a trainer ignores it.
        stop: For `Tuner`; a trainer ignores it, since the training function ends by itself.
        progress_reporter: For `Tuner`; a trainer ignores it.
        log_to_file: Accepted and ignored: the output of workers is in the session's logs.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: pafs.FileSystem | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: list[Any] | None = None
    worker_runtime_env: dict[str, Any] | None = None
    logging_config: LoggingConfig | None = None
    sync_config: Any = _UNSET
    verbose: Any = _UNSET
    stop: Any = _UNSET
    progress_reporter: Any = _UNSET
    log_to_file: Any = _UNSET

    def __post_init__(self) -> None:
        if self.storage_path is not None:
            arguments.path("storage_path", self.storage_path)
        self.storage_path = os.fspath(
            self.storage_path or os.environ.get(STORAGE_VARIABLE) or Path(DEFAULT_STORAGE).expanduser()
        )
        if self.storage_filesystem is not None:
            from skate.air import _filesystems  # importing pyarrow takes long

            _filesystems.check("storage_filesystem", self.storage_filesystem)
        for name, kind in (
            ("failure_config", FailureConfig),
            ("checkpoint_config", CheckpointConfig),
            ("logging_config", LoggingConfig),
        ):
            arguments.instance(
                name, getattr(self, name), kind, f"a {kind.__name__}", optional=True, error=ValueError
            )
        if self.name is not None and self.name != "":
            self.name = arguments.folder_name("name", self.name)
        self._generated_name = f"train_run-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
        self.name = self.name or self._generated_name
        self.failure_config = self.failure_config or FailureConfig()
        self.checkpoint_config = self.checkpoint_config or CheckpointConfig()
        self.logging_config = self.logging_config or LoggingConfig()
        must = "a list of objects of classes derived from skate.train.UserCallback"
        callbacks: Any = arguments.instance("callbacks", self.callbacks, (list, tuple), must, optional=True)
        self.callbacks = list(callbacks or [])
        for callback in self.callbacks:
            if not isinstance(callback, RunCallback):
                arguments.refuse("callbacks", must, self.callbacks, ValueError)
        self.worker_runtime_env = _checked_environment(self.worker_runtime_env)


def warn_of_unused(config: RunConfig) -> None:
    """Warn of the settings that have no effect on a training run; most of them are for `Tuner`."""
    level = 6  # the program, which calls the constructor of a subclass of DataParallelTrainer
    _warn_of(
        "RunConfig",
        level,
        sync_config=config.sync_config,
        verbose=config.verbose,
        stop=config.stop,
        progress_reporter=config.progress_reporter,
        log_to_file=config.log_to_file,
    )
    if config.failure_config is not None:
        _warn_of("FailureConfig", level, fail_fast=config.failure_config.fail_fast)


def given_settings(config: RunConfig | FailureConfig | CheckpointConfig) -> dict[str, Any]:
    """Return the settings of a configuration that have a value, by name."""
    values = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    if isinstance(config, RunConfig) and config.name == config._generated_name:
        del values["name"]
    return {
        name: value
        for name, value in values.items()
        if not (value is None or (isinstance(value, str) and value == _UNSET))
    }


def _checked_environment(environment: Any) -> dict[str, Any]:
    """Check the runtime environment of workers, and return it as a dict."""
    given = arguments.mapping("worker_runtime_env", environment)
    if given and not isinstance(environment, RuntimeEnv):
        with arguments.naming("worker_runtime_env"):
            RuntimeEnv(**given)
    return given


def _warn_of(config: str, level: int = 4, **given: Any) -> None:
    for name, value in given.items():
        if value is not _UNSET and value is not None:
            warnings.warn(
                f"{config}({name}=…) has no effect on a training run", RayDeprecationWarning, stacklevel=level
            )
