"""The worker of trials: an actor that runs one trial at a time, step by step."""

from __future__ import annotations

import functools
import logging
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from skate.tune._workers.function_thread import FunctionThread
from skate.tune._workers.messages import Assignment, Report, Step, WorkerSettings
from skate.tune._workers.output import TrialOutput
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
from skate.util._session import engine_name

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune._workers.checkpoint_store import CheckpointStore

log = logging.getLogger("skate.tune")

ORIGINAL_FOLDER = "TUNE_ORIG_WORKING_DIR"  # the variable with the working directory of the program


class _Run(Protocol):
    """A trial that runs in this process."""

    def step(self) -> Step:
        """Run until the trial needs a decision."""

    def save(self) -> str | None:
        """Save a checkpoint, and return its name. Return None if the trainable does not save on demand."""

    def stop(self) -> bool:
        """End the trial; return whether the process can run another one."""


class TrialWorker:
    """Runs trials of one trainable, one after another.

    Args:
        trainable: A function, or a subclass of `Trainable`.
        settings: The settings of the experiment.
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
        self._changes_folder = settings.changes_folder and engine_name() != "inline"
        if self._changes_folder:
            os.environ[ORIGINAL_FOLDER] = os.getcwd()
        self._kept: Trainable | None = None
        self._run: _Run | None = None
        self._files: TrialFiles | None = None
        self._output: TrialOutput | None = None
        self._constants = {PID: os.getpid(), HOSTNAME: platform.node(), NODE_IP: get_node_ip_address()}

    @functools.cached_property
    def _thread(self) -> FunctionThread:
        return FunctionThread()

    def start(self, fields: dict[str, Any]) -> Step | None:
        """Start a trial, and run its first step; return None if another trial has not ended.

        Args:
            fields: The fields of an `Assignment`.
        """
        if self._run is not None:
            return None
        assignment = Assignment(**fields)
        shown = None
        if assignment.objects:
            from skate.tune.search._placeholders import receive

            config, shown = receive(assignment.config, assignment.objects)
            assignment = replace(assignment, config=config, objects=None)
        files = self._files = TrialFiles(assignment, self._settings, shown)
        if self._changes_folder:
            os.chdir(assignment.folder)
        if self._settings.log_to_file is not None:
            self._output = TrialOutput(assignment.folder, self._settings.log_to_file)
        try:
            self._run = self._create_run(assignment, files)
        except BaseException:
            self._close()
            raise
        return self.step()

    def _create_run(self, assignment: Assignment, files: TrialFiles) -> _Run:
        if is_trainable_class(self._trainable):
            files.create()
            kept, self._kept = self._kept, None
            return _ClassRun(self._trainable, assignment, self._settings, self._resources, kept)
        session = TrialSession(self._trainable, assignment, self._settings, self._resources, self._thread)
        return _FunctionRun(session, self._constants, files)

    def _close(self) -> None:
        """Close the files of the trial."""
        if self._files is not None:
            self._files.close()
        output, self._output = self._output, None
        if output is not None:
            output.close()

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
            self._close()
            raise
        if step.done:
            self._end()
        return step

    def save(self) -> str | None:
        """Save a checkpoint of the trial; return its name."""
        assert self._run is not None
        return self._run.save()

    def export(self) -> None:
        """Export the model of the trial, which is about to end."""
        if isinstance(self._run, _ClassRun):
            try:
                self._run.export()
            except BaseException:
                self._end()
                raise

    def stop(self, is_over: bool) -> bool:
        """Stop running the trial; return whether this process can run another one.

        Args:
            is_over: Whether the trial has ended; otherwise it is paused.
        """
        if self._files is not None:
            self._files.write(is_last=is_over)
        return self._run is None or self._end()

    def clean_up(self) -> None:
        """Clean up the trainable that is kept for the next trial."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.stop()

    def _end(self) -> bool:
        """End the trial, or keep its trainable for the next one; return whether this process can run another one."""
        run, self._run = self._run, None
        assert run is not None
        try:
            if self._settings.reuse_trainable and isinstance(run, _ClassRun):
                self._kept = run.trainable
                return True
            return run.stop()
        finally:
            self._close()


class _FunctionRun:
    def __init__(self, session: TrialSession, constants: dict[str, Any], files: TrialFiles) -> None:
        self._session = session
        self._files = files
        self._constants = constants
        self._iteration = session.assignment.iteration
        self._total = session.assignment.time_total_s
        self._since_restore = 0
        self._begun = self._last = time.monotonic()

    def step(self) -> Step:
        step = self._session.step(self._files.create)
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
        self._kind = kind
        self._assignment = assignment
        self._settings = settings
        self._resources = resources
        self.trainable = self._reset(kept) if kept is not None else self._create()
        if assignment.checkpoint is not None:
            self._restore(assignment.checkpoint)

    def _reset(self, kept: Trainable) -> Trainable:
        """Return the trainable of another trial, or a new one if it cannot adopt the configuration."""
        if kept.reset(self._assignment.config):
            return self._identify(kept)
        kept.stop()
        if self._kind.reset_config is not Trainable.reset_config:
            raise RuntimeError(
                f"reset_config() of {self._kind.__name__} returned a false value, but reuse_actors is set: return True "
                "after adopting the configuration, or set reuse_actors=False."
            )
        return self._create()

    def _create(self) -> Trainable:
        trainable = self._identify(self._kind.__new__(self._kind))
        trainable.__init__(config=self._assignment.config)  # type: ignore[misc]  # `setup` knows its trial
        return trainable

    def _identify(self, trainable: Trainable) -> Trainable:
        trainable._trial_id = self._assignment.trial_id
        trainable._trial_name = self._assignment.trial_name
        trainable._trial_resources = self._resources
        trainable._logdir = self._assignment.folder
        return trainable

    def _restore(self, checkpoint: str | Checkpoint) -> None:
        """Load a checkpoint, with new instances if that fails."""
        for left in range(self._settings.restore_retries, -1, -1):
            try:
                self.trainable.restore(self._store.open(checkpoint))
                return
            except Exception:
                self.trainable.stop()
                if not left:
                    raise
                log.warning("trial %s could not load %s: retrying", self._assignment.trial_name, checkpoint)
            self.trainable = self._create()

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
        report = Report(metrics, self.save() if wanted else None)
        if done:
            self.export()
        return Step(report, done)

    def export(self) -> None:
        if self._settings.export_formats:
            self.trainable.export_model(list(self._settings.export_formats))

    def save(self) -> str | None:
        with tempfile.TemporaryDirectory(prefix="skate_trainable_") as folder:
            return self._store.store(self.trainable.save(folder))

    def stop(self) -> bool:
        self.trainable.stop()
        return True
