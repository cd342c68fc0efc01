"""The base of all trainers, which runs one function on several workers."""

from __future__ import annotations

import copy
import dataclasses
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, Self

import skate
from skate._base.suggestions import did_you_mean
from skate.air import _arguments as arguments
from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.datasets import DataConfig
from skate.train._config.trainer_arguments import (
    WithConfig,
    bind_function,
    check_backend,
    check_datasets,
    check_metadata,
    check_trainer,
)
from skate.train._config.validation_config import ValidationConfig
from skate.train._run.controller import Controller
from skate.train._run.run_context import RunContext
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import RUN_FILE, Storage
from skate.train._views.logs import RunLog
from skate.train._workers.local_group import LocalWorkerGroup
from skate.train._workers.sessions import TrialInfo
from skate.train.backend import BackendConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["DataParallelTrainer"]


class DataParallelTrainer:
    """Runs a training function on several workers.

    Args:
        train_loop_per_worker: The training function, without parameters or with one dict.
        train_loop_config: The argument of the training function.
        backend_config: How the workers are connected.
        scaling_config: The number and the resources of the workers.
        run_config: Where the run is stored, and how it handles failures.
        datasets: Datasets, or functions that return them, by name. Each worker gets its part with
            `get_dataset_shard(name)`.
        dataset_config: How the datasets are split.
        metadata: The metadata of each checkpoint.
        resume_from_checkpoint: The first result of `get_checkpoint()`.
        validation_config: How to validate checkpoints that are reported with `validation=True`.

    Example:
        >>> import tempfile
        >>> import skate.train
        >>> def learn(config):
        ...     skate.train.report({"loss": 1 / config["steps"]})
        >>> trainer = DataParallelTrainer(
        ...     learn,
        ...     train_loop_config={"steps": 4},
        ...     scaling_config=skate.train.ScalingConfig(num_workers=0),
        ...     run_config=skate.train.RunConfig(storage_path=tempfile.mkdtemp()),
        ... )
        >>> trainer.fit().metrics
        {'loss': 0.25}
    """

    _trial: TrialInfo | None = None  # set by Tune, for a run that belongs to a trial
    _saves_checkpoints = False  # true for a trainer that trains without a function of the user's
    # The arguments that a trial may change; attributes have the same names.
    _searchable: tuple[str, ...] = ("train_loop_config", "scaling_config", "datasets")

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None = None,
        dataset_config: DataConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        check_trainer(scaling_config, run_config, dataset_config, resume_from_checkpoint, validation_config)
        self._function = bind_function(train_loop_per_worker, train_loop_config)
        self.train_loop_config = train_loop_config
        self.backend_config = check_backend("backend_config", backend_config, BackendConfig)
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.dataset_config = dataset_config or DataConfig()
        self.datasets = check_datasets(datasets, self.dataset_config)
        self.metadata = check_metadata(metadata)
        self.resume_from_checkpoint = resume_from_checkpoint
        self.validation_config = validation_config

    def fit(self) -> Result:
        """Train, and return the result.

        Raises:
            TrainingFailedError: Workers failed more than `FailureConfig.max_failures` times, or could not be started.
            OSError: The run's folder is not writable.
            ValueError: `CheckpointConfig` asks the trainer for checkpoints that only the training function can report.
            TypeError: The training function cannot be serialized.
        """
        keep = self.run_config.checkpoint_config
        if keep is not None and keep.asked_of_trainer and not self._saves_checkpoints:
            raise ValueError(
                f"{' and '.join(keep.asked_of_trainer)} of CheckpointConfig cannot be used with a training function, "
                "which decides when to call report(…, checkpoint=…). Leave it out."
            )
        has_workers = self.scaling_config.max_workers > 0
        with (
            nullcontext(LocalWorkerGroup())
            if has_workers
            else self.backend_config._local_worker_group() as local_group
        ):
            return self._fit(local_group)

    def _fit(self, local_group: LocalWorkerGroup) -> Result:
        config = self.run_config
        if local_group.ranks.world_rank > 0:
            config = copy.copy(config)
            config.callbacks = None  # rank 0 calls them
        context = RunContext(
            uuid.uuid4().hex,
            config,
            self.scaling_config,
            self.train_loop_config,
            self.backend_config,
            self.datasets,
            self.dataset_config,
            self.metadata,
            self.validation_config,
            self._trial,
        )
        assert config.storage_path is not None
        assert config.name is not None
        first_checkpoint = None if self._trial is None else self._trial.next_checkpoint
        storage = local_group.storage(
            config.storage_path, config.name, config.storage_filesystem, first_checkpoint
        )
        if self.scaling_config.max_workers and not skate.is_initialized():
            skate.init()
        assert config.logging_config is not None
        error: BaseException | None = None
        try:
            with RunLog(storage, config.logging_config.log_level):
                controller = Controller(
                    context, self._function, storage, self.resume_from_checkpoint, local_group
                )
                return controller.run()
        except BaseException as ended:
            error = ended
            raise
        finally:
            for callback in config.callbacks or ():
                callback._run_ended(context, error)

    def get_dataset_config(self) -> DataConfig:
        """Return how datasets are split between the workers."""
        return self.dataset_config

    def as_trainable(self) -> NoReturn:
        """Raise an error: a trainer is tuned as it is.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("pass the trainer itself to skate.tune.Tuner; as_trainable() is not needed")

    def _check_arguments(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if a name is no argument of the trainer that a trial may change."""
        known = self._searchable
        for name in given:
            if name not in known:
                raise ValueError(
                    f"a search space for {type(self).__name__} may have {', '.join(known)}, not {name!r}."
                    f"{did_you_mean(name, known)}"
                )

    def _configured(self, given: Mapping[str, Any]) -> Self:
        """Return a copy with other arguments; dictionaries are merged with those of this trainer, at any depth."""
        self._check_arguments(given)
        trainer = copy.copy(self)
        for name, value in given.items():
            before = getattr(self, name)
            if name == "scaling_config" and isinstance(value, Mapping):
                value = dataclasses.replace(before, **value)
            elif isinstance(value, Mapping) and isinstance(before, Mapping):
                value = _merge(before, value)
            setattr(trainer, name, value)
        if isinstance(self._function, WithConfig):
            trainer._function = WithConfig(self._function.function, dict(trainer.train_loop_config or {}))
        return trainer

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether the folder holds a resumable run."""
        filesystem, folder = folders.locate(path, storage_filesystem)
        storage = Storage(
            os.path.dirname(folder.rstrip("/")), os.path.basename(folder.rstrip("/")), filesystem
        )
        return storage.read() is not None

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        storage_filesystem: Any = None,
        **options: Any,
    ) -> DataParallelTrainer:
        """Return a trainer that resumes a run.

        Args:
            path: The run's folder.
            train_loop_per_worker: The training function, which is not stored with the run; None for a trainer that
                trains without one.
            train_loop_config: The argument of the training function; that of the earlier run if not given.
            storage_filesystem: The filesystem of the path; determined by the path if not given.
            **options: Further arguments of the trainer.

        Raises:
            ValueError: The folder contains no run.
        """
        filesystem, location = folders.locate(path, storage_filesystem)
        folder, name = os.path.split(location.rstrip("/"))
        record = Storage(folder, name, filesystem).read()
        if record is None:
            raise ValueError(
                f"Invalid restore path: {location}. `path` must be the folder of a run, and it has no {RUN_FILE}."
            )
        run_config = options.pop("run_config", None)
        arguments.instance(
            "run_config", run_config, RunConfig, "a skate.train.RunConfig", optional=True, error=ValueError
        )
        run_config = run_config or RunConfig()
        run_config.storage_path, run_config.name, run_config.storage_filesystem = folder, name, filesystem
        return cls(
            train_loop_per_worker,  # type: ignore[arg-type]  # the constructor rejects None where it needs a function
            train_loop_config=train_loop_config if train_loop_config is not None else record.config or None,
            run_config=run_config,
            **options,
        )


def _merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested dictionaries with values replaced and added."""
    merged = dict(base)
    for key, value in update.items():
        old = merged.get(key)
        is_nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if is_nested else value  # type: ignore[arg-type]
    return merged
