"""Trainers as trainables: each trial runs `fit()` with the configuration of the trial."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from skate.air.config import CheckpointConfig
from skate.train import Checkpoint, UserCallback
from skate.train._workers.sessions import TrialInfo
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune._workers.session import need_session
from skate.tune.execution.placement_groups import PlacementGroupFactory, TrainerResources
from skate.tune.impl.config import RunConfig, adapt_config
from skate.tune.trainable.trainable_fn_utils import get_checkpoint


class TrainerFunction:
    """A trainable function that runs a trainer.

    The trainer reserves a placement group for its workers. A trial counts these resources from its start, so that the
    trainers of concurrent trials never wait for each other.

    Args:
        trainer: The trainer. Each trial runs a copy with the values of its configuration, such as
            `{"train_loop_config": {"lr": 0.1}}`.
    """

    def __init__(self, trainer: DataParallelTrainer) -> None:
        self._trainer = trainer
        self.__name__ = type(trainer).__name__

    def _resources(self, config: dict[str, Any]) -> PlacementGroupFactory:
        scaling = self._trainer._configured(config).scaling_config
        if scaling.max_workers == 0:
            return PlacementGroupFactory([{"CPU": 1}])
        return TrainerResources([{}, *[scaling.bundle] * scaling.max_workers])

    def __call__(self, config: dict[str, Any]) -> None:
        session = need_session("TrainerFunction")
        assignment, storage = session.assignment, session.settings.storage
        trainer = self._trainer._configured(config)
        run = copy.copy(trainer.run_config)
        if storage is None:
            run.storage_path, run.storage_filesystem = assignment.folder, None
        else:
            run.storage_path, run.storage_filesystem = storage.path_of(assignment.folder), storage.filesystem
        # A trial that restarts is another run, which numbers its checkpoints after those of the earlier runs.
        run.name = f"run_{assignment.trial_id}_{assignment.next_checkpoint:06d}"
        run.checkpoint_config = CheckpointConfig()  # the experiment decides which are kept
        run.callbacks = [*(run.callbacks or []), _ReportToTune()]
        trainer.run_config = run
        trainer._trial = TrialInfo(
            assignment.trial_id,
            assignment.trial_name,
            assignment.folder,
            session.settings.experiment_name,
            session.resources,
            assignment.next_checkpoint,
        )
        trainer.resume_from_checkpoint = get_checkpoint() or trainer.resume_from_checkpoint
        trainer.fit()


class _ReportToTune(UserCallback):
    """Forwards the reports of rank 0 to Tune."""

    _needs_rank_0 = True

    def __init__(self) -> None:
        self._checkpoints: set[str] = set()

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if checkpoint is not None:
            if checkpoint.path in self._checkpoints:
                return  # a slow worker has added its part to it
            self._checkpoints.add(checkpoint.path)
        need_session("TrainerFunction").report(metrics[0], checkpoint)


def run_config_of(trainer: DataParallelTrainer) -> RunConfig:
    """Return the configuration of an experiment from that of its trainer.

    The run of each trial keeps the callbacks and the handling of failures. It decides when to report checkpoints, and
    the experiment decides which are kept.
    """
    given = copy.copy(trainer.run_config)
    given.callbacks = given.failure_config = None
    if (keep := given.checkpoint_config) is not None:
        given.checkpoint_config = CheckpointConfig(
            keep.num_to_keep, keep.checkpoint_score_attribute, keep.checkpoint_score_order
        )
    config: RunConfig = adapt_config(given)
    return config


def check_space(trainer: DataParallelTrainer, space: Mapping[str, Any]) -> None:
    """Check that a search space names only arguments of the trainer.

    Raises:
        ValueError: A name is unknown; the error suggests the closest argument.
    """
    trainer._check_arguments(space)
