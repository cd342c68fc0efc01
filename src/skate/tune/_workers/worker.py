"""The worker of trials: an actor that runs one trial at a time, step by step."""

from __future__ import annotations

import functools
import os
import platform
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from skate.tune._workers.messages import Assignment, Report, Step, WorkerSettings
from skate.tune._workers.session import TrialSession
from skate.tune._workers.trial_files import TrialFiles
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.result import (
    DONE,
    HOSTNAME,
    NODE_IP,
    PID,
    SHOULD_CHECKPOINT,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTAMP,
    TRAINING_ITERATION,
)
from skate.tune.trainable.trainable import Trainable
from skate.tune.trainable.util import is_trainable_class
from skate.util import get_node_ip_address

if TYPE_CHECKING:
    from skate.tune._workers.checkpoint_store import CheckpointStore

ORIGINAL_FOLDER = "TUNE_ORIG_WORKING_DIR"  # the variable with the working directory of the program


class _Run(Protocol):
    """A trial that runs in this process."""

    def step(self) -> Step:
        """Run until the trial needs a decision."""

    def save(self) -> str | None:
        """Save a checkpoint; return its name, or None if the trainable saves none on demand."""

    def stop(self) -> bool:
        """End the trial; return whether the process can run another one."""


class TrialWorker:
    """Runs trials of one trainable, one after another.

    Args:
        trainable: A function, or a subclass of `Trainable`.
        settings: Those of the experiment.
        resources: The resources of each trial.
    """

    def __init__(
        self,
        trainable: Callable[..., Any] | type[Trainable],
        settings: WorkerSettings,
        resources: PlacementGroupFactory,
    ) -> None:
        self._trainable = trainable
        self._settings = settings
        self._resources = resources
        self._changes_folder = settings.driver not in (None, os.getpid())
        if self._changes_folder:
            os.environ[ORIGINAL_FOLDER] = os.getcwd()
        self._kept: Trainable | None = None
        self._run: _Run | None = None
        self._files: TrialFiles | None = None
        self._constants = {PID: os.getpid(), HOSTNAME: platform.node(), NODE_IP: get_node_ip_address()}

    def start(self, fields: dict[str, Any]) -> Step | None:
        """Start a trial, and run its first step; return None if another trial has not ended.

        Args:
            fields: Those of an `Assignment`.
        """
        if self._run is not None:
            return None
        assignment = Assignment(**fields)
        self._files = TrialFiles(assignment, self._settings.writes_params)
        if self._changes_folder:
            os.chdir(assignment.folder)
        if is_trainable_class(self._trainable):
            kept, self._kept = self._kept, None
            self._run = _ClassRun(self._trainable, assignment, self._settings, self._resources, kept)
        else:
            session = TrialSession(self._trainable, assignment, self._settings, self._resources)
            self._run = _FunctionRun(session, self._constants)
        return self.step()

    def step(self) -> Step:
        """Run the trial until it needs a decision."""
        run, files = self._run, self._files
        assert run is not None
        assert files is not None
        try:
            files.write(is_last=False)
            step = run.step()
            if step.report is not None:
                files.hold(step.report)
            if step.done:
                files.write(is_last=True)
        except BaseException:
            self._run = None
            if isinstance(run, _FunctionRun):
                run.stop()  # the function has ended, unless a file could not be written
            raise
        if step.done:
            self._end()
        return step

    def save(self) -> str | None:
        """Save a checkpoint of the trial; return its name."""
        assert self._run is not None
        return self._run.save()

    def stop(self, is_over: bool) -> bool:
        """Stop running the trial; return whether this process can run another one.

        Args:
            is_over: Whether the trial has ended; else it is paused.
        """
        run, self._run = self._run, None
        if self._files is not None:
            self._files.write(is_last=is_over)
        return run is None or run.stop()

    def _end(self) -> None:
        run, self._run = self._run, None
        assert run is not None
        run.stop()
        if self._settings.reuse_trainable and isinstance(run, _ClassRun):
            self._kept = run.trainable


class _FunctionRun:
    def __init__(self, session: TrialSession, constants: dict[str, Any]) -> None:
        self._session = session
        self._constants = constants
        self._iteration = session.assignment.iteration
        self._total = session.assignment.time_total_s
        self._since_restore = 0
        self._begun = self._last = time.monotonic()

    def step(self) -> Step:
        step = self._session.step()
        if step.report is None:
            return step
        return Step(Report(self._filled(step.report.metrics), step.report.checkpoint), step.done)

    def _filled(self, metrics: dict[str, Any]) -> dict[str, Any]:
        now, wall = time.monotonic(), time.time()
        seconds, self._last = now - self._last, now
        self._iteration += 1
        self._since_restore += 1
        self._total += seconds
        return {
            **self._constants,
            TIMESTAMP: int(wall),
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(wall)),
            TIME_THIS_ITER_S: seconds,
            TIME_TOTAL_S: self._total,
            "time_since_restore": now - self._begun,
            "iterations_since_restore": self._since_restore,
            TRAINING_ITERATION: self._iteration,
            **metrics,
        }

    def save(self) -> str | None:
        return None  # a function saves with its reports

    def stop(self) -> bool:
        return self._session.stop()


class _ClassRun:
    def __init__(
        self,
        kind: type[Trainable],
        assignment: Assignment,
        settings: WorkerSettings,
        resources: PlacementGroupFactory,
        kept: Trainable | None,
    ) -> None:
        self._assignment = assignment
        self._settings = settings
        if kept is not None and kept.reset(assignment.config):
            self.trainable = kept
        else:
            if kept is not None:
                kept.stop()
            self.trainable = kind(config=assignment.config)
        self.trainable._trial_id = assignment.trial_id
        self.trainable._trial_name = assignment.trial_name
        self.trainable._trial_resources = resources
        self.trainable._logdir = assignment.folder
        if assignment.checkpoint is not None:
            self.trainable.restore(self._store.open(assignment.checkpoint))

    @functools.cached_property
    def _store(self) -> CheckpointStore:
        from skate.tune._workers.checkpoint_store import CheckpointStore

        return CheckpointStore(self._assignment, self._settings.storage)

    def step(self) -> Step:
        metrics = self.trainable.train()
        done = bool(metrics[DONE])
        frequency = self._settings.checkpoint_frequency
        due = frequency and self.trainable.iteration % frequency == 0
        wanted = due or metrics.pop(SHOULD_CHECKPOINT, False) or (done and self._settings.checkpoint_at_end)
        metrics.pop("config", None)  # the controller adds it
        return Step(Report(metrics, self.save() if wanted else None), done)

    def save(self) -> str | None:
        with tempfile.TemporaryDirectory(prefix="skate_trainable_") as folder:
            return self._store.store(self.trainable.save(folder))

    def stop(self) -> bool:
        self.trainable.stop()
        return True
