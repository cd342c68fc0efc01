"""The loop of an experiment, which creates trials, runs them on workers, and acts on the scheduler's decisions."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from sys import intern
from typing import Any

import skate
from skate.exceptions import RayActorError, RayError, RayTaskError
from skate.train import Checkpoint
from skate.tune._experiment.checkpoints import KeptCheckpoint, Saved, SaveHandle, number_after, select_dropped
from skate.tune._loop.results import check_metrics, reaches_criterion, required_metrics
from skate.tune._loop.settings import ExperimentSettings, Settings
from skate.tune._loop.worker_pool import CallKind, Calls, RunningTrial, Worker, WorkerPool
from skate.tune._workers.messages import Report, Step
from skate.tune._workers.session import STOP_TIMEOUT_S
from skate.tune._workers.trial_files import check_folder
from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.result import DONE, EXPERIMENT_TAG, TRIAL_ID
from skate.tune.schedulers import FIFOScheduler, TrialScheduler
from skate.tune.search import BasicVariantGenerator, SearchAlgorithm

log = logging.getLogger("skate.tune")

MAX_WAITING = 16  # trials that are created ahead of the resources
_MAX_PENDING = "TUNE_MAX_PENDING_TRIALS_PG"  # the variable with another number, or "auto"
_POLL_S = 1.0  # between two checks of the time budget
_SUGGESTION_POLL_S = 0.05  # between two requests to a search that has no suggestion, which sends no event

_FAST_S = 0.05  # if a trial takes less time than this, another trial may wait for its worker


class TuneController:
    """Runs one experiment, or several together.

    Args:
        settings: The settings of the run.
        trials: The trials of an experiment that continues.
    """

    def __init__(self, settings: Settings, trials: Sequence[Trial] = ()) -> None:
        self._settings = settings
        self._experiments = settings.experiments
        self._metrics = required_metrics(settings)
        self._recorders = list(dict.fromkeys(each.recorder for each in settings.experiments))
        self._trials: list[Trial] = []
        self._pending: dict[Trial, None] = {}
        self._paused: dict[Trial, None] = {}
        self._running: dict[Trial, RunningTrial] = {}
        self._live: dict[Trial, None] = {}
        self._calls = Calls()
        self._waiting: dict[Worker, RunningTrial] = {}  # trials that wait for another one on their worker
        self._iteration = 0
        self._stopped = False
        self._pool = WorkerPool(
            [(skate.put(each.trainable), each.worker_settings(settings)) for each in settings.experiments]
        )
        # A search that learns from results is asked as late as possible, and other schedulers stop waiting trials.
        self._queues_trials = (
            settings.reuse_workers
            and isinstance(settings.search, BasicVariantGenerator)
            and type(settings.scheduler) is FIFOScheduler
        )
        self._reuse_actors = settings.reuse_trainables
        given = os.environ.get(_MAX_PENDING, "auto")
        self._max_waiting = MAX_WAITING if given == "auto" else int(given)
        self._resource_updater = self._pool
        self.experiment_path = str(settings.experiments[0].folder.local)
        for trial in trials:
            self._add(trial, new=False)

    def _experiment(self, trial: Trial) -> ExperimentSettings:
        return self._experiments[trial.experiment]

    # ------------------------------------------------------------ for schedulers and callbacks

    @property
    def search_alg(self) -> SearchAlgorithm:
        """The search algorithm that creates the trials."""
        return self._settings.search

    def get_trials(self) -> list[Trial]:
        """Return all trials, in the order in which they were added."""
        return self._trials

    def get_live_trials(self) -> Collection[Trial]:
        """Return the trials that have not ended."""
        return self._live.keys()

    def get_waiting_trials(self) -> Iterator[Trial]:
        """Return the pending trials, then the paused ones, each in the order in which they were added."""
        yield from list(self._pending)
        yield from list(self._paused)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Pause a running trial, after a checkpoint unless `should_checkpoint` is false."""
        if should_checkpoint:
            self._save_state(trial)
        self._leave_worker(trial, is_over=False)
        self._set_status(trial, Trial.PAUSED)

    def _save_state(self, trial: Trial) -> None:
        """Save a checkpoint, unless the trial has saved one with its last result."""
        if trial.checkpoint_metrics is not trial.last_result:
            self._schedule_trial_save(trial).resolve()

    def stop_trial(self, trial: Trial) -> None:
        """End a trial."""
        if trial.is_finished():
            return
        if trial in self._running:
            self._settings.scheduler.on_trial_complete(self, trial, trial.last_result)
            self._leave_worker(trial, is_over=True)
        else:
            self._settings.scheduler.on_trial_remove(self, trial)
        self._end(trial, Trial.TERMINATED)

    def exploit(self, trial: Trial, source: Trial, config: dict[str, Any], checkpoint: Any) -> bool:
        """Give a trial a checkpoint of another one and a configuration, and run it again later."""
        if isinstance(checkpoint, SaveHandle):
            saved = checkpoint.resolve()
        else:
            saved = Saved(checkpoint, source.checkpoint_metrics)
        if saved is None or saved.checkpoint is None:
            return False
        if trial in self._running:
            self._leave_worker(trial, is_over=False)
        trial.set_config(config)
        trial.checkpoint, trial.checkpoint_metrics = saved.checkpoint, saved.metrics
        self._experiment(trial).recorder.changed(trial)
        self._set_status(trial, Trial.PAUSED)
        return True

    def _schedule_trial_save(self, trial: Trial, result: dict[str, Any] | None = None) -> SaveHandle:
        """Save a checkpoint of a running trial. A function has saved its latest checkpoint with a report."""
        running = self._running.get(trial)
        metrics = result or trial.last_result

        def store(name: str | None) -> Saved:
            if name is None:
                return Saved(trial.checkpoint, trial.checkpoint_metrics)
            return Saved(self._add_checkpoint(trial, name, metrics), metrics)

        return SaveHandle(None if running is None else running.worker.actor.save.remote(), store)

    # ------------------------------------------------------------ the loop

    def run(self) -> list[Trial]:
        """Run the experiment to its end, and return its trials."""
        self._call(
            "setup", stop=self._experiments[0].stopper, num_samples=self._settings.search.total_samples
        )
        try:
            self._start_trials()
            while not self._stopped and (self._live or not self._settings.search.is_finished()):
                self._iteration += 1
                self._call("on_step_begin", iteration=self._iteration, trials=self._trials)
                self._process_calls()
                if not self._should_stop():
                    self._start_trials()
                for recorder in self._recorders:
                    recorder.step(self._settings.state if recorder is self._recorders[0] else None)
                self._call("on_step_end", iteration=self._iteration, trials=self._trials)
            for trial in list(self._live):
                self.stop_trial(trial)
            self._await_stops()
        finally:
            if self._reuse_actors:
                self._pool.clean_up(STOP_TIMEOUT_S)
            self._pool.close()
            self._call("on_experiment_end", trials=self._trials)
        return self._trials

    def _await_stops(self) -> None:
        """Let functions that were stopped run their cleanup."""
        deadline = time.monotonic() + 2 * STOP_TIMEOUT_S
        while self._calls and time.monotonic() < deadline:
            self._process_calls()

    def _start_trials(self) -> None:
        limit = self._settings.max_concurrent or float("inf")
        while len(self._running) + self._calls.stopping < limit:
            trial = self._settings.scheduler.choose_trial_to_run(self)
            if trial is None:
                if len(self._pending) >= self._max_waiting or not self._create_trial():
                    break
            elif not self._start(trial):
                break
        if not self._pending:
            self._create_trial()  # it may be slow, so it is done while other trials run
        self._pool.end_idle_if_stalled()

    def _create_trial(self) -> bool:
        search = self._settings.search
        trial = None if search.is_finished() else search.next_trial()
        if trial is None:
            return False
        self._add(trial, new=True)
        return True

    def _add(self, trial: Trial, *, new: bool) -> None:
        self._trials.append(trial)
        experiment = self._experiment(trial)
        if experiment.objects:
            trial.objects = experiment.objects
            if new:
                trial.config = experiment.objects.resolve(trial.config)
        if trial.placement_group_factory is None:
            trial.placement_group_factory = experiment.resources_of(trial.config)
        trial.checkpoint_config = experiment.checkpoint_config
        trial.export_formats = list(experiment.export_formats)
        trial.max_failures = experiment.failure_config.max_failures
        if new:
            experiment.folder.create_trial(trial)
            experiment.recorder.added(trial)
            if experiment.recorder is not self._recorders[0]:
                self._recorders[
                    0
                ].created += 1  # stored with the state of the search, which creates all trials
        elif not trial.is_finished():
            assert trial.local_path is not None
            os.makedirs(trial.local_path, exist_ok=True)
        if not trial.is_finished():
            self._live[trial] = None
            self._set_status(trial, trial.status)
            self._settings.scheduler.on_trial_add(self, trial)

    def _start(self, trial: Trial) -> bool:
        """Start a trial on a worker. Return whether a worker is free."""
        resources = trial.placement_group_factory
        assert resources is not None
        impossible = self._pool.why_impossible(resources)
        if impossible:
            self._settings.scheduler.on_trial_remove(self, trial)
            self._fail(
                trial,
                TuneError(
                    f"trial {trial} can never start: {impossible}. Request less with tune.with_resources(), or start "
                    "the session with more."
                ),
            )
            return True
        worker = self._pool.acquire(resources, trial.experiment, force=not self._running and not self._calls)
        waits = worker is None
        if worker is None and self._queues_trials:
            worker = self._pool.queue(resources, trial.experiment)
        if worker is None:
            return False
        running = self._running[trial] = RunningTrial(trial, worker, time.monotonic())
        if waits:
            self._waiting[worker] = running
        self._set_status(trial, Trial.RUNNING)
        self._calls.add(
            CallKind.STEP,
            running,
            worker.actor.start.remote(self._experiment(trial).assignment(trial).to_fields()),
        )
        info = {"iteration": self._iteration, "trials": self._trials, "trial": trial}
        if trial.checkpoint is not None:
            self._call("on_trial_restore", **info)
        self._call("on_trial_start", **info)
        return True

    # ------------------------------------------------------------ events of workers

    def _process_calls(self) -> None:
        if not self._calls:
            self._wait_for_search()
            return
        for kind, running, reference in self._calls.take_ready(_POLL_S):
            self._process(kind, running, reference)
            if self._should_stop():
                break  # results that arrived at the same time are ignored

    def _should_stop(self) -> bool:
        """Return whether all trials stop."""
        self._stopped = self._stopped or any(each.stopper.stop_all() for each in self._experiments)
        return self._stopped

    def _wait_for_search(self) -> None:
        """Wait a moment for a search that has no suggestion yet.

        Raises:
            TuneError: Trials are waiting, but no trial is running that could make the scheduler continue one of them.
        """
        if self._live:
            scheduler = type(self._settings.scheduler).__name__
            raise TuneError(
                f"the experiment cannot continue: no trial is running, and {scheduler} starts none of the "
                f"{len(self._pending)} pending and {len(self._paused)} paused trials."
            )
        time.sleep(_SUGGESTION_POLL_S)

    def _process(self, kind: CallKind, running: RunningTrial, reference: Any) -> None:
        trial = running.trial
        try:
            value = skate.get(reference)
        except RayError as error:  # of the trial, or of a worker that has died or was killed for its memory
            if isinstance(error, RayTaskError):
                check_folder(error.cause)
            if kind is CallKind.STEP and self._running.get(trial) is running:
                self._trial_failed(running, error)
            else:
                self._discard(running.worker)
            return
        if kind is CallKind.STOP:
            if value:
                self._release(running.worker)
            else:
                self._discard(running.worker)
        elif self._running.get(trial) is running:
            if value is None:  # the worker runs a longer trial
                self._start_elsewhere(running)
                self._pool.release(running.worker)
            else:
                self._stepped(running, value)

    def _start_elsewhere(self, running: RunningTrial) -> None:
        """Make a trial that has not started on its worker pending again."""
        running.worker.is_fast = False
        self._waiting.pop(running.worker, None)
        self._calls.forget(running)
        del self._running[running.trial]
        self._set_status(running.trial, Trial.PENDING)

    def _discard(self, worker: Worker) -> None:
        """End a worker. A trial that waits for it starts on another one."""
        self._pool.discard(worker)
        if worker in self._waiting:
            self._start_elsewhere(self._waiting[worker])

    def _release(self, worker: Worker) -> None:
        """Keep a worker whose trial has ended, if workers are reused. A trial that waits for it starts."""
        self._waiting.pop(worker, None)
        if self._settings.reuse_workers:
            self._pool.release(worker)
        else:
            self._pool.discard(worker)

    def _stepped(self, running: RunningTrial, step: Step) -> None:
        trial = running.trial
        running.steps += 1
        if step.done:
            worker, now = running.worker, time.monotonic()
            worker.is_fast = running.steps == 1 and now - max(running.started, worker.last_end) < _FAST_S
            worker.last_end = now
        decision = TrialScheduler.CONTINUE
        if step.report is not None:
            decision = self._reported(trial, step.report, done=step.done)
        if self._running.get(trial) is not running:
            return  # the scheduler has paused or stopped it
        if step.done:
            if step.report is None and trial.last_result:
                trial.last_result = {**trial.last_result, DONE: True}
            del self._running[trial]
            self._release(running.worker)
            self._settings.scheduler.on_trial_complete(self, trial, trial.last_result)
            self._end(trial, Trial.TERMINATED)
        elif decision == TrialScheduler.STOP:
            if self._experiment(trial).checkpoint_config.checkpoint_at_end:
                self._save_state(trial)
            if trial.export_formats and not self._export(running):
                return
            self._leave_worker(trial, is_over=True)
            self._settings.scheduler.on_trial_complete(self, trial, trial.last_result)
            self._end(trial, Trial.TERMINATED)
        elif decision == TrialScheduler.PAUSE:
            self.pause_trial(trial)
        else:
            self._calls.add(CallKind.STEP, running, running.worker.actor.step.remote())

    def _export(self, running: RunningTrial) -> bool:
        """Export the model of a trial that is stopped. Return whether this succeeded; otherwise the trial fails."""
        try:
            skate.get(running.worker.actor.export.remote())
        except (RayTaskError, RayActorError) as error:
            self._trial_failed(running, error)
            return False
        return True

    def _reported(self, trial: Trial, report: Report, *, done: bool) -> str:
        # All trials share the names of the metrics, which arrive as copies.
        result = {
            intern(name) if type(name) is str else name: value for name, value in report.metrics.items()
        }
        result[TRIAL_ID] = trial.trial_id
        result[EXPERIMENT_TAG] = trial.experiment_tag
        result.setdefault("config", trial.config)
        if report.checkpoint is not None:
            result["checkpoint_dir_name"] = report.checkpoint
        check_metrics(trial, result, self._metrics)
        stopper = self._experiment(trial).stopper
        stop = stopper(trial.trial_id, result) or done or reaches_criterion(trial, result)
        result[DONE] = stop
        trial.update_last_result(result)
        if report.checkpoint is not None:
            self._add_checkpoint(trial, report.checkpoint, result)
        info = {"iteration": self._iteration, "trials": self._trials, "trial": trial}
        self._call("on_trial_result", **info, result=result)
        if done:
            return TrialScheduler.CONTINUE
        self._settings.search.on_trial_result(trial.trial_id, result)
        if stop:
            return TrialScheduler.STOP
        return self._settings.scheduler.on_trial_result(self, trial, result)

    def _add_checkpoint(self, trial: Trial, name: str, metrics: dict[str, Any]) -> Checkpoint:
        experiment = self._experiment(trial)
        folder = experiment.folder
        checkpoint = Checkpoint(f"{folder.trial_path(trial)}/{name}", folder.filesystem)
        trial.checkpoint, trial.checkpoint_metrics = checkpoint, metrics
        trial.kept.append(KeptCheckpoint(name, metrics))
        trial.next_checkpoint = max(trial.next_checkpoint, number_after(name))
        experiment.recorder.checkpoint(trial, name, metrics)
        self._drop_checkpoints(trial)
        info = {"iteration": self._iteration, "trials": self._trials, "trial": trial}
        self._call("on_checkpoint", **info, checkpoint=checkpoint)
        self._call("on_trial_save", **info)
        return checkpoint

    def _drop_checkpoints(self, trial: Trial) -> None:
        experiment = self._experiment(trial)
        for old in select_dropped(trial.kept, experiment.checkpoint_config):
            path = f"{experiment.folder.trial_path(trial)}/{old.name}"
            if any(each.checkpoint is not None and each.checkpoint.path == path for each in self._live):
                continue  # another trial continues from it
            trial.kept.remove(old)
            experiment.recorder.dropped(path)

    # ------------------------------------------------------------ ends

    def _trial_failed(self, running: RunningTrial, error: RayError) -> None:
        trial = running.trial
        if self._waiting.get(running.worker) is running:  # its worker died before it started
            self._discard(running.worker)
            return
        del self._running[trial]
        self._discard(running.worker)  # a failed trial may leave memory, threads or locks behind
        trial.num_failures += 1
        info = {"iteration": self._iteration, "trials": self._trials, "trial": trial}
        if trial.max_failures < 0 or trial.num_failures <= trial.max_failures:
            self._set_status(trial, Trial.PENDING)
            self._call("on_trial_recover", **info)
            return
        self._settings.scheduler.on_trial_error(self, trial)
        self._fail(trial, error)

    def _fail(self, trial: Trial, error: Exception) -> None:
        trial.error = error
        experiment = self._experiment(trial)
        experiment.folder.write_error(trial)
        fail_fast = experiment.failure_config.fail_fast
        self._settings.search.on_trial_complete(trial.trial_id, error=True)
        self._set_status(trial, Trial.ERROR)
        experiment.recorder.ended(trial)
        self._call("on_trial_error", iteration=self._iteration, trials=self._trials, trial=trial)
        if fail_fast == "raise":
            raise error
        self._stopped = self._stopped or bool(fail_fast)

    def _end(self, trial: Trial, status: str) -> None:
        self._set_status(trial, status)
        self._settings.search.on_trial_complete(trial.trial_id, result=trial.last_result or None)
        self._experiment(trial).recorder.ended(trial)
        self._call("on_trial_complete", iteration=self._iteration, trials=self._trials, trial=trial)

    def _leave_worker(self, trial: Trial, *, is_over: bool) -> None:
        """Let a worker end or pause a trial that waits for a decision, so that the worker can run other trials."""
        running = self._running[trial]
        if self._waiting.get(running.worker) is running:
            self._discard(running.worker)
            return
        del self._running[trial]
        if self._calls.has_step(running):
            self._calls.forget(running)
            self._discard(running.worker)  # in the middle of a step, which cannot be interrupted
        else:
            self._calls.add(CallKind.STOP, running, running.worker.actor.stop.remote(is_over))

    def _set_status(self, trial: Trial, status: str) -> None:
        self._pending.pop(trial, None)
        self._paused.pop(trial, None)
        trial.set_status(status)
        if status == Trial.PENDING:
            self._pending[trial] = None
        elif status == Trial.PAUSED:
            self._paused[trial] = None
        elif trial.is_finished():
            self._live.pop(trial, None)

    def _call(self, event: str, **info: Any) -> None:
        for callback in self._settings.callbacks:
            getattr(callback, event)(**info)
