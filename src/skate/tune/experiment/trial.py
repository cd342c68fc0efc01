"""A trial: one configuration, and everything that is known of its training. It does no I/O."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar

from skate.tune.result import EXPR_ERROR_FILE, TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.train import Checkpoint, CheckpointConfig
    from skate.tune._experiment.checkpoints import KeptCheckpoint
    from skate.tune.execution.placement_groups import PlacementGroupFactory

__all__ = ["Trial"]

RECENT = (5, 10)  # results that the moving averages of `metric_analysis` span
FINAL_STATES = frozenset(("TERMINATED", "ERROR"))


class Trial:
    """One configuration of an experiment, with its status, results and checkpoints.

    Args:
        trainable_name: The registered name of the trainable.
        config: The resolved configuration.
        trial_id: A unique id; a random one by default.
        evaluated_params: The sampled values by their path in the search space, such as `"optimizer/lr"`.
        experiment_tag: A short text that names the trial by its sampled values.
        placement_group_factory: The resources of the trial.
        stopping_criterion: Metrics and the values at which the trial stops.
        checkpoint_config: When checkpoints are taken, and which are kept.
        max_failures: Number of failures after which the trial is not restarted; -1 for no limit.
        trial_name_creator: Returns the name of the trial.
        trial_dirname_creator: Returns the name of its folder.
        stub: Accepted for programs written for Ray; has no effect.
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
    ) -> None:
        self.trainable_name = trainable_name
        self.trial_id = trial_id or self.generate_id()
        self.config = config if config is not None else {}
        self.evaluated_params = dict(evaluated_params or {})
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory
        self.stopping_criterion = dict(stopping_criterion or {})
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
        self._statistics: dict[str, _Statistics] = {}  # empty until the second result
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

    def set_experiment_tag(self, experiment_tag: str) -> None:
        """Replace the text that names the trial by its sampled values."""
        self.experiment_tag = experiment_tag

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
        """Add the value of the result with the number `count`."""
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
