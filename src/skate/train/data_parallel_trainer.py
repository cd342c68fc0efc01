"""Runs one function on several workers: what every trainer of the package does."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import skate
from skate.air import _arguments as arguments
from skate.train._config.arguments import (
    bound_function,
    check_trainer,
    checked_backend,
    checked_datasets,
    checked_metadata,
)
from skate.train._config.datasets import DataConfig
from skate.train._config.shared import RunConfig, ScalingConfig
from skate.train._config.validation import ValidationConfig
from skate.train._run.controller import Controller
from skate.train._run.run_context import RunContext
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import RECORD, Storage
from skate.train._views.logs import RunLog
from skate.train._workers.company import Company
from skate.train.backend import BackendConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["DataParallelTrainer"]


class DataParallelTrainer:
    """Runs a training function on several workers.

    Args:
        train_loop_per_worker: The function, which takes nothing, or one dict.
        train_loop_config: That dict.
        backend_config: What connects the workers with each other.
        scaling_config: How many workers there are, and what each has.
        run_config: Where the run is kept, and how it deals with failures.
        datasets: Datasets, or functions that return them, by name: each worker gets its part with
            `get_dataset_shard(name)`.
        dataset_config: How they are shared.
        metadata: What is noted on each checkpoint.
        resume_from_checkpoint: What `get_checkpoint()` returns at the beginning.
        validation_config: What validates checkpoints that are reported with `validation=True`.

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

    _keeps_checkpoints = False  # by itself, because it trains without a function of the user's

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
        self._function = bound_function(train_loop_per_worker, train_loop_config)
        self.train_loop_config = train_loop_config
        self.backend_config = checked_backend("backend_config", backend_config, BackendConfig)
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.dataset_config = dataset_config or DataConfig()
        self.datasets = checked_datasets(datasets, self.dataset_config)
        self.metadata = checked_metadata(metadata)
        self.resume_from_checkpoint = resume_from_checkpoint
        self.validation_config = validation_config

    def fit(self) -> Result:
        """Train, and return what came of it.

        Raises:
            TrainingFailedError: Workers failed more often than `FailureConfig.max_failures`, or could not be started.
            OSError: The run's folder cannot be written to.
            ValueError: The settings ask the trainer to keep checkpoints, and it runs a training function, which does.
            TypeError: The training function cannot be serialised.
        """
        keep = self.run_config.checkpoint_config
        if keep is not None and keep.asked_of_trainer and not self._keeps_checkpoints:
            raise ValueError(
                f"{' and '.join(keep.asked_of_trainer)} of CheckpointConfig cannot be met: when to keep one is "
                "up to the training function, which hands them to report(…, checkpoint=…). Leave it out."
            )
        has_workers = self.scaling_config.max_workers > 0
        with nullcontext(Company()) if has_workers else self.backend_config._company() as company:
            return self._fit(company)

    def _fit(self, company: Company) -> Result:
        config = self.run_config
        if company.place.world_rank > 0:
            config = copy.copy(config)
            config.callbacks = None  # they are told by rank 0
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
        )
        assert config.storage_path is not None
        assert config.name is not None
        storage = company.storage(config.storage_path, config.name, config.storage_filesystem)
        if self.scaling_config.max_workers and not skate.is_initialized():
            skate.init()
        assert config.logging_config is not None
        error: BaseException | None = None
        try:
            with RunLog(storage, config.logging_config.log_level):
                controller = Controller(
                    context, self._function, storage, self.resume_from_checkpoint, company
                )
                return controller.run()
        except BaseException as ended:
            error = ended
            raise
        finally:
            for callback in config.callbacks or ():
                callback._run_ended(context, error)

    def get_dataset_config(self) -> DataConfig:
        """Return how datasets are shared between the workers."""
        return self.dataset_config

    def as_trainable(self) -> NoReturn:
        """Refuse to become a trainable of Ray Tune, which Skate does not have.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "as_trainable() is for Ray Tune, which Skate does not have: call fit() for each of the settings to try"
        )

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Tell whether a folder holds a run that can be gone on with."""
        filesystem, place = folders.located(path, storage_filesystem)
        storage = Storage(os.path.dirname(place.rstrip("/")), os.path.basename(place.rstrip("/")), filesystem)
        return storage.read() is not None

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        train_loop_config: dict[str, Any] | None = None,
        storage_filesystem: Any = None,
        **options: Any,
    ) -> DataParallelTrainer:
        """Return a trainer that goes on with a run.

        Args:
            path: The run's folder.
            train_loop_per_worker: The training function.
            train_loop_config: What it is given; as at first, if not given.
            storage_filesystem: The filesystem of the path; found by the path if not given.
            **options: As for a new trainer.

        Raises:
            ValueError: No run is kept there.
        """
        filesystem, place = folders.located(path, storage_filesystem)
        folder, name = os.path.split(place.rstrip("/"))
        record = Storage(folder, name, filesystem).read()
        if record is None:
            raise ValueError(
                f"Invalid restore path: {place}. `path` must be the folder of a run, and it has no {RECORD}."
            )
        run_config = options.pop("run_config", None)
        arguments.instance(
            "run_config", run_config, RunConfig, "a skate.train.RunConfig", optional=True, error=ValueError
        )
        run_config = run_config or RunConfig()
        run_config.storage_path, run_config.name, run_config.storage_filesystem = folder, name, filesystem
        return cls(
            train_loop_per_worker,
            train_loop_config=train_loop_config if train_loop_config is not None else record.config or None,
            run_config=run_config,
            **options,
        )
