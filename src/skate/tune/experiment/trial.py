"""A trial: one configuration, with its status, results and checkpoints. It does no I/O."""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar

from skate.tune.error import TuneError
from skate.tune.experiment._metrics import flat, lookup
from skate.tune.experiment._storage import TrialStorage
from skate.tune.result import DONE, EXPR_ERROR_FILE, NODE_IP, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune._experiment.checkpoints import KeptCheckpoint
    from skate.tune.execution.placement_groups import PlacementGroupFactory
    from skate.tune.impl.config import CheckpointConfig
    from skate.tune.search._placeholders import ObjectTable

__all__ = ["ExportFormat", "Trial"]

RECENT = (5, 10)  # results that the moving averages of `metric_analysis` span
FINAL_STATES = frozenset(("TERMINATED", "ERROR"))


class ExportFormat:
    """Names of the formats in which trainables export their models."""

    CHECKPOINT: ClassVar = "checkpoint"
    MODEL: ClassVar = "model"
    ONNX: ClassVar = "onnx"
    H5: ClassVar = "h5"

    @staticmethod
    def validate(formats: list[str]) -> None:
        """Check that formats are among those of this class, and convert them to lower case in place.

        Raises:
            TuneError: A format is unknown.
        """
        known = [ExportFormat.CHECKPOINT, ExportFormat.MODEL, ExportFormat.ONNX, ExportFormat.H5]
        formats[:] = [each.strip().lower() for each in formats]
        for each in formats:
            if each not in known:
                raise TuneError(f"Unsupported export format {each!r}: it must be one of {known}.")


class Trial:
    """One configuration of an experiment, with its status, results and checkpoints.

    Args:
        trainable_name: The registered name of the trainable.
        config: The resolved configuration.
        trial_id: A unique id; a random one by default.
        evaluated_params: The sampled values by their path in the search space, such as `"optimizer/lr"`.
        experiment_tag: A short string that identifies the trial by its sampled values.
        placement_group_factory: The resources of the trial.
        stopping_criterion: Metrics, which may be nested, and the values at which the trial stops.
        checkpoint_config: When checkpoints are taken, and which are kept.
        max_failures: The number of failures after which the trial is not restarted; -1 for no limit.
        trial_name_creator: Returns the name of the trial.
        trial_dirname_creator: Returns the name of its folder.
        stub: Has no effect; accepted for programs written for Ray.
        storage: The trial's folder, if it exists.
        export_formats: The formats in which a trainable class exports its model at the end of the trial.
        restore_path: The checkpoint that the trial starts from.
        log_to_file: Whether the output of the trial is written to files in its folder.
    """

    PENDING: ClassVar = "PENDING"
    RUNNING: ClassVar = "RUNNING"
    PAUSED: ClassVar = "PAUSED"
    TERMINATED: ClassVar = "TERMINATED"
    ERROR: ClassVar = "ERROR"
    stored_path: str | None = None  # the path of its folder in a storage that is not a local disk

    def __init__(
        self,
        trainable_name: str,
        *,
        config: dict[str, Any] | None = None,
        trial_id: str | None = None,
        evaluated_params: Mapping[str, Any] | None = None,
        experiment_tag: str = "",
        placement_group_factory: PlacementGroupFactory | None = None,
        stopping_criterion: Mapping[str, float] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        max_failures: int = 0,
        trial_name_creator: Callable[[Trial], str] | None = None,
        trial_dirname_creator: Callable[[Trial], str] | None = None,
        stub: bool = False,
        storage: TrialStorage | None = None,
        export_formats: Sequence[str] | None = None,
        restore_path: str | None = None,
        log_to_file: bool | str | tuple[str | None, str | None] | None = None,
    ) -> None:
        self.trainable_name = trainable_name
        self.trial_id = trial_id or self.generate_id()
        self.config = config if config is not None else {}
        self.evaluated_params = dict(evaluated_params or {})
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory
        self.stopping_criterion = dict(flat(stopping_criterion or {}))
        self.checkpoint_config = checkpoint_config
        self.max_failures = max_failures
        self.status: str = Trial.PENDING
        self.last_result: dict[str, Any] = {}
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_metrics: dict[str, Any] = {}  # of the report that the checkpoint came with
        self.next_checkpoint = 0  # the number of the next checkpoint
        self.kept: list[KeptCheckpoint] = []  # its checkpoints, the oldest first
        self.error: Exception | None = None
        self.relative_logdir: str | None = None  # the name of its folder, once that exists
        self.local_path: str | None = None  # the path of its folder, once that exists
        self.num_failures = 0
        self.export_formats = list(export_formats or ())
        self.restore_path = restore_path
        self.log_to_file = log_to_file
        self.experiment = 0  # the index of its experiment, of several that run together
        self.objects: ObjectTable | None = None  # the objects of the search space, if it has any
        self._statistics: dict[str, _Statistics] = {}  # empty until the second result
        if storage is not None:
            self.relative_logdir, self.local_path = storage.trial_dir_name, storage.trial_fs_path
        if restore_path is not None:
            from skate.train import Checkpoint

            self.checkpoint = Checkpoint(restore_path)
        self.custom_trial_name = trial_name_creator(self) if trial_name_creator else None
        self.custom_dirname = trial_dirname_creator(self) if trial_dirname_creator else None

    @classmethod
    def generate_id(cls) -> str:
        """Return a new random id."""
        return uuid.uuid4().hex[:8]

    def set_status(self, status: str) -> None:
        """Set the status."""
        self.status = status

    def set_config(self, config: dict[str, Any]) -> None:
        """Replace the configuration."""
        self.config = config

    @property
    def _stored_config(self) -> dict[str, Any]:
        """The configuration with placeholders for the objects of the search space, which are stored elsewhere."""
        return self.config if self.objects is None else self.objects.replace(self.config)

    def set_experiment_tag(self, experiment_tag: str) -> None:
        """Replace the string that identifies the trial by its sampled values."""
        self.experiment_tag = experiment_tag

    def update_resources(self, resources: Mapping[str, Any] | PlacementGroupFactory) -> None:
        """Replace the resources of a trial that does not run.

        Args:
            resources: The resources; a dictionary such as `{"cpu": 2}` is one bundle.

        Raises:
            ValueError: The trial is running.
        """
        if self.status == Trial.RUNNING:
            raise ValueError(
                f"the resources of trial {self} cannot change while it is running: pause it first."
            )
        if isinstance(resources, Mapping):
            from skate.tune.execution.placement_groups import resource_dict_to_pg_factory

            resources = resource_dict_to_pg_factory(resources)
        self.placement_group_factory = resources

    def should_stop(self, result: Mapping[str, Any]) -> bool:
        """Return whether a result is the last of the trial: it is marked as done, or reaches a stopping criterion.

        A criterion whose metric the result does not have is not reached. The name of a metric may be a path such as
        `"eval/loss"`.
        """
        if result.get(DONE):
            return True
        for name, limit in self.stopping_criterion.items():
            value = lookup(result, name)
            if value is not None and value >= limit:
                return True
        return False

    def should_checkpoint(self) -> bool:
        """Return whether `checkpoint_config` requires a checkpoint after the last result."""
        if self.last_result.get(DONE) and self.checkpoint_at_end:
            return True
        return bool(
            self.checkpoint_freq and self.last_result.get(TRAINING_ITERATION, 0) % self.checkpoint_freq == 0
        )

    def should_recover(self) -> bool:
        """Return whether the trial may be restarted after its failures so far."""
        return self.max_failures < 0 or self.num_failures <= self.max_failures

    def get_trainable_cls(self) -> Any:
        """Return the registered function or class of the trial.

        Raises:
            TuneError: Its trainable is not registered.
        """
        from skate.tune.registry import get_trainable_cls

        return get_trainable_cls(self.trainable_name)

    def reset(self) -> Trial:
        """Return a new trial with the same configuration, resources and criteria, which has not run."""
        new = Trial(
            self.trainable_name,
            config=self.config,
            evaluated_params=self.evaluated_params,
            experiment_tag=self.experiment_tag,
            placement_group_factory=self.placement_group_factory,
            stopping_criterion=self.stopping_criterion,
            checkpoint_config=self.checkpoint_config,
            max_failures=self.max_failures,
            export_formats=self.export_formats,
            restore_path=self.restore_path,
            log_to_file=self.log_to_file,
        )
        new.experiment, new.objects = self.experiment, self.objects
        new.custom_trial_name, new.custom_dirname = self.custom_trial_name, self.custom_dirname
        return new

    @property
    def checkpoint_at_end(self) -> bool | None:
        """Whether a checkpoint is saved when the trial ends."""
        config = self.checkpoint_config
        return None if config is None else config.checkpoint_at_end

    @property
    def checkpoint_freq(self) -> int:
        """The number of steps between two checkpoints; 0 for none."""
        config = self.checkpoint_config
        return 0 if config is None else config.checkpoint_frequency

    @property
    def node_ip(self) -> str | None:
        """The address of the node that the trial ran on when it last reported."""
        return self.last_result.get(NODE_IP)

    def get_ray_actor_ip(self) -> str | None:
        """Return the address of the node that the trial ran on when it last reported."""
        return self.node_ip

    @property
    def storage(self) -> TrialStorage | None:
        """The folders of the trial and of its experiment, once they exist; None if they are not on a local disk."""
        if self.local_path is None or self.path != self.local_path:
            return None
        import pyarrow.fs as pafs

        return TrialStorage(pafs.LocalFileSystem(), self.local_path, self.local_path)

    @property
    def experiment_dir_name(self) -> str | None:
        """The name of the experiment's folder."""
        return None if self.storage is None else self.storage.experiment_dir_name

    @property
    def local_experiment_path(self) -> str | None:
        """The experiment's folder."""
        return None if self.local_path is None else os.path.dirname(self.local_path)

    @property
    def remote_experiment_path(self) -> str | None:
        """The experiment's folder."""
        return self.local_experiment_path

    @property
    def logdir(self) -> str | None:
        """Replaced by `local_path`.

        Raises:
            DeprecationWarning: Always.
        """
        raise DeprecationWarning("Use `local_path` instead of `logdir`.")

    def is_finished(self) -> bool:
        """Return whether the trial has ended, with or without an error."""
        return self.status in FINAL_STATES

    @property
    def has_reported_at_least_once(self) -> bool:
        """Whether the trial has a result."""
        return bool(self.last_result)

    def has_checkpoint(self) -> bool:
        """Return whether the trial has a checkpoint."""
        return self.checkpoint is not None

    @property
    def path(self) -> str | None:
        """The trial's folder in the storage of the experiment, once it exists."""
        return self.stored_path or self.local_path

    @property
    def error_file(self) -> str | None:
        """The file with the error of a failed trial."""
        return None if self.error is None or self.path is None else f"{self.path}/{EXPR_ERROR_FILE}"

    def get_error(self) -> Exception | None:
        """Return the error of a failed trial."""
        return self.error

    def update_last_result(self, result: dict[str, Any]) -> None:
        """Record a result, and update the statistics of its numbers."""
        if self.last_result:
            if not self._statistics:
                self._add_to_statistics(self.last_result)
            self._add_to_statistics(result)
        self.last_result = result

    def _add_to_statistics(self, result: dict[str, Any]) -> None:
        for name, value in _numbers(result):
            known = self._statistics.get(name)
            if known is None:
                self._statistics[name] = _Statistics(value)
            else:
                known.add(value, result.get(TRAINING_ITERATION) or 1)

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The statistics of each metric: `max`, `min`, `avg`, `last`, and averages of the latest 5 and 10 values."""
        if self._statistics:
            return {name: each.as_dict() for name, each in self._statistics.items()}
        return {name: _Statistics(value).as_dict() for name, value in _numbers(self.last_result)}

    def __str__(self) -> str:
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    __repr__ = __str__


class _Statistics:
    """The statistics of the values of one metric."""

    __slots__ = ("last", "max", "mean", "min", "recent")

    def __init__(self, value: float) -> None:
        self.max = self.min = self.mean = self.last = value
        self.recent = deque((value,), maxlen=max(RECENT))

    def add(self, value: float, count: int) -> None:
        """Add the value of result number `count`."""
        self.max = max(value, self.max)
        self.min = min(value, self.min)
        self.mean += (value - self.mean) / max(count, 1)
        self.last = value
        self.recent.append(value)

    def as_dict(self) -> dict[str, float]:
        found = {"max": self.max, "min": self.min, "avg": self.mean, "last": self.last}
        for span in RECENT:
            latest = list(self.recent)[-span:]
            found[f"last-{span}-avg"] = sum(latest) / len(latest)
        return found


def _numbers(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Return the numbers of a result, with the path of nested ones joined by slashes."""
    found: list[tuple[str, float]] = []
    for key, value in result.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if name != "config":
                found += _numbers(value, f"{name}/")
        elif isinstance(value, Number) and not isinstance(value, bool | complex):
            found.append((name, float(value)))  # type: ignore[arg-type]
    return found
