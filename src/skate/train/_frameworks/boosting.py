"""The common part of XGBoost and LightGBM: reports of rounds, and training without a training function."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skate.air import _arguments as arguments
from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.trainer_arguments import check_trainer
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers import sessions
from skate.train._workers.train_context import TRAIN_DATASET_KEY, get_dataset_shard, report
from skate.train.backend import BackendConfig
from skate.train.data_parallel_trainer import DataParallelTrainer

if TYPE_CHECKING:
    from skate.data import Dataset

Metrics = str | list[str] | dict[str, str] | None
Postprocess = Callable[[dict[str, float | list[float]]], dict[str, float]]

DEFAULT_ROUNDS = 10


@dataclass(frozen=True)
class Reports:
    """Which metrics of a round to report, and which rounds have a checkpoint.

    Attributes:
        metrics: The names of the metrics to report, or new names for them; None for all.
        filename: The model's file in a checkpoint.
        frequency: The number of rounds between two checkpoints; 0 for none.
        checkpoint_at_end: Whether to report the model of the last round.
        postprocess: Computes the reported metrics from all metrics.
    """

    metrics: Metrics
    filename: str
    frequency: int
    checkpoint_at_end: bool
    postprocess: Postprocess | None

    def __post_init__(self) -> None:
        self._check_metrics()
        arguments.folder_name("filename", self.filename)
        arguments.whole("frequency", self.frequency, must="a number of rounds, or 0 for never")
        arguments.flag("checkpoint_at_end", self.checkpoint_at_end)
        arguments.function("results_postprocessing_fn", self.postprocess, optional=True)

    def _check_metrics(self) -> None:
        given = self.metrics
        if given is None or isinstance(given, str):
            return
        is_collection = isinstance(given, list | tuple | dict)
        names = [*given, *(given.values() if isinstance(given, dict) else ())] if is_collection else [None]
        if not all(isinstance(name, str) for name in names):
            must = "the name of a metric, a list of names, a dictionary of new names and names, or None"
            arguments.refuse("metrics", must, given)

    def is_due(self, rounds: int) -> bool:
        """Return whether the model is reported after a number of rounds of this training."""
        return self.frequency > 0 and rounds % self.frequency == 0

    def select(self, log: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics to report; of a list, which has a value per round, the last value counts.

        Raises:
            KeyError: A selected metric was not computed; the error names those that were.
        """
        if self.postprocess is not None:
            log = dict(self.postprocess(log))
        log = {name: value[-1] if isinstance(value, list) else value for name, value in log.items()}
        if self.metrics is None:
            return log
        names = [self.metrics] if isinstance(self.metrics, str) else self.metrics
        wanted = names if isinstance(names, dict) else {name: name for name in names}
        for name in wanted.values():
            if name not in log:
                known = ", ".join(map(repr, log)) or "none"
                raise KeyError(f"cannot report metric {name!r}: the computed metrics are {known}")
        return {shown: log[name] for shown, name in wanted.items()}

    def report(self, log: dict[str, Any], save: Callable[[str], object] | None) -> None:
        """Report a round, on rank 0 with the model if `save` is given; all workers have the same model."""
        values = self.select(log)
        if save is None or sessions.current("RayTrainReportCallback").ranks.world_rank:
            report(values)
            return
        with tempfile.TemporaryDirectory(prefix="skate_checkpoint_") as folder:
            save(str(Path(folder, self.filename)))
            report(values, checkpoint=Checkpoint.from_directory(folder))


@dataclass(frozen=True)
class DefaultLoop:
    """The training function of a trainer that is given a dataset, a label column and parameters instead.

    Attributes:
        label_column: The column to predict.
        params: Parameters of the framework.
        num_boost_round: The total number of rounds, over all restarts.
        train_kwargs: Further arguments of the framework's `train`.
        datasets: The names of the datasets; all but "train" are for evaluation.
        frequency: The number of rounds between two checkpoints.
        checkpoint_at_end: Whether to report the model of the last round.
    """

    label_column: str
    params: dict[str, Any]
    num_boost_round: int
    train_kwargs: dict[str, Any] = field(default_factory=dict)
    datasets: tuple[str, ...] = (TRAIN_DATASET_KEY,)
    frequency: int = 0
    checkpoint_at_end: bool = True

    def __call__(self) -> None:
        """Train on this worker's part of the datasets."""
        raise NotImplementedError

    def frames(self) -> dict[str, tuple[Any, Any]]:
        """Return the features and the label of this worker's part of each dataset; "train" comes first.

        Raises:
            ValueError: This worker has no rows, or the label column is missing.
        """
        others = [name for name in self.datasets if name != TRAIN_DATASET_KEY]
        return {name: self._frame(name) for name in [TRAIN_DATASET_KEY, *others]}

    def convert(self, frame: Any) -> Any:
        """Return a frame in a form that the framework accepts."""
        return frame

    def _frame(self, name: str) -> tuple[Any, Any]:
        frame = self.convert(get_dataset_shard(name).materialize().to_pandas())
        if not len(frame):
            ranks = sessions.current("get_dataset_shard()").ranks
            raise ValueError(
                f"rank {ranks.world_rank} of {ranks.world_size} has no rows of dataset {name!r}: use fewer workers, or "
                "more rows"
            )
        if self.label_column not in frame:
            known = ", ".join(map(repr, frame.columns))
            raise ValueError(
                f"dataset {name!r} has no column {self.label_column!r}, which is the label_column: it has {known}"
            )
        return frame.drop(columns=self.label_column), frame[self.label_column]


class BoostingTrainer(DataParallelTrainer):
    """Runs a training function, or trains on the datasets itself if it is given a label column instead."""

    _default_loop: type[DefaultLoop]
    _train: Callable[..., Any]  # of the framework

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None,
        *,
        label_column: str | None,
        params: dict[str, Any] | None,
        num_boost_round: int | None,
        train_kwargs: dict[str, Any],
        backend_config: BackendConfig,
        train_loop_config: dict[str, Any] | None,
        scaling_config: ScalingConfig | None,
        run_config: RunConfig | None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None,
        **options: Any,
    ) -> None:
        trainer = type(self).__name__
        check_trainer(
            scaling_config,
            run_config,
            options.get("dataset_config"),
            options.get("resume_from_checkpoint"),
            options.get("validation_config"),
        )
        _check_loop_arguments(label_column, params, num_boost_round)
        legacy = {
            "label_column": label_column,
            "params": params,
            "num_boost_round": num_boost_round,
            **train_kwargs,
        }
        given = [name for name, value in legacy.items() if value is not None]
        if train_loop_per_worker is None:
            given_datasets = arguments.mapping("datasets", datasets, error=ValueError)
            loop = self._build_loop(legacy, train_kwargs, given_datasets, run_config)
            train_loop_per_worker = loop
            self._saves_checkpoints = True
            self.label_column, self.params = loop.label_column, loop.params
            self.num_boost_round = loop.num_boost_round
            self._searchable = ("label_column", "params", "num_boost_round", "scaling_config", "datasets")
        elif given:
            raise ValueError(
                f"{trainer} was given a training function and {', '.join(given)}: these are for training without one. "
                "Pass them to the framework in the function."
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=backend_config,
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            **options,
        )

    def _build_loop(
        self,
        legacy: dict[str, Any],
        train_kwargs: dict[str, Any],
        datasets: Mapping[str, Any],
        run_config: RunConfig | None,
    ) -> DefaultLoop:
        trainer = type(self).__name__
        if TRAIN_DATASET_KEY not in datasets:
            known = ", ".join(map(repr, datasets)) or "none"
            raise ValueError(
                f"{trainer} without a training function needs a dataset named {TRAIN_DATASET_KEY!r} in `datasets`, got "
                f"{known}."
            )
        if not legacy["label_column"]:
            raise ValueError(
                f"{trainer} needs a training function (train_loop_per_worker), or a label_column to train without one."
            )
        taken = inspect.signature(self._train).parameters
        for name in train_kwargs:
            if name not in taken:
                raise TypeError(
                    f"{trainer} got an unexpected keyword argument {name!r}, which is not an argument of "
                    f"{self._train.__module__.partition('.')[0]}.train either. "
                    f"{arguments.hint_for_unknown(name, taken)}"
                )
        keep = run_config.checkpoint_config if run_config is not None else None
        frequency, at_end = (
            (keep.checkpoint_frequency, keep.checkpoint_at_end) if keep is not None else (None, None)
        )
        return self._default_loop(
            legacy["label_column"],
            dict(legacy["params"] or {}),
            legacy["num_boost_round"] or DEFAULT_ROUNDS,
            train_kwargs,
            tuple(datasets),
            # Ray's placeholder strings stand for values that were not given.
            frequency if isinstance(frequency, int) else 0,
            at_end if isinstance(at_end, bool) else True,
        )

    def _configured(self, given: Mapping[str, Any]) -> Self:
        trainer = super()._configured(given)
        if isinstance(trainer._function, DefaultLoop):
            _check_loop_arguments(trainer.label_column, trainer.params, trainer.num_boost_round)
            trainer._function = replace(
                trainer._function,
                label_column=trainer.label_column,
                params=trainer.params,
                num_boost_round=trainer.num_boost_round or DEFAULT_ROUNDS,
                datasets=tuple(trainer.datasets),
            )
        return trainer


def _check_loop_arguments(label_column: Any, params: Any, num_boost_round: Any) -> None:
    arguments.text("label_column", label_column, "the name of a column", optional=True)
    arguments.mapping("params", params)
    if num_boost_round is not None:
        arguments.whole("num_boost_round", num_boost_round, low=1, must="a positive integer or None")
