"""Drives a run: starts workers, and restarts them from the latest checkpoint after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import skate
from skate._api import tracing, variables
from skate.exceptions import RayActorError
from skate.train._failures import causes
from skate.train._failures.causes import Failure
from skate.train._failures.errors import ControllerError, TrainingFailedError, WorkerGroupError
from skate.train._run import elasticity, in_process
from skate.train._run.attempt import Attempt
from skate.train._run.run_context import RunContext
from skate.train._run.run_state import RunState
from skate.train._run.validations import Validations
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import Storage
from skate.train._views import run_progress
from skate.train._workers.group import WorkerGroup
from skate.train._workers.local_group import LocalWorkerGroup
from skate.util._run_records import recording

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0  # for the resources of a group; TRAIN_WORKER_GROUP_START_TIMEOUT_S overrides it
_DATA_MODULES = ["skate.data._preloaded"]  # for workers that read datasets


class Controller:
    """Drives one run, from its first worker to its result.

    Args:
        context: The configuration of the run.
        function: The training function, without parameters.
        storage: The run's folder.
        resume_from: A checkpoint to start from.
        local_group: The processes that train if Skate starts no workers.
    """

    def __init__(
        self,
        context: RunContext,
        function: Callable[[], Any],
        storage: Storage,
        resume_from: Checkpoint | None = None,
        local_group: LocalWorkerGroup | None = None,
    ) -> None:
        self._context = context
        self._local_group = local_group or LocalWorkerGroup()
        self._function = function
        self._function_ref: Any = None
        self._storage = storage
        self._run_state = RunState(context, storage, resume_from)
        self._validations = Validations(
            context.validation_config if storage.is_primary else None,
            self._run_state,
            context.scaling_config.bundle.get("CPU", 0),
        )

    def run(self) -> Result:
        """Train, and return the result.

        Raises:
            TrainingFailedError: The run failed more often than it may.
            KeyboardInterrupt: The user interrupted the run, which is resumable.
        """
        name = self._storage.experiment_dir_name
        with tracing.span(f"train {name}"):
            if not self._storage.is_primary:
                return self._run()
            with recording("train", name, self._run_state.description):
                return self._run()

    def _run(self) -> Result:
        run_state = self._run_state
        self._storage.prepare()
        run_state.resume(self._local_group.broadcast)
        shown = run_progress.show(run_state.progress) if self._storage.is_primary else None
        try:
            if self._context.scaling_config.max_workers == 0:
                self._train_in_process()
            else:
                while not self._attempt():
                    pass
            self._validations.finish()
        except KeyboardInterrupt:
            self._validations.stop()
            run_state.close("interrupted")
            log.warning(
                "interrupted: the next run with this name resumes from the latest checkpoint: %s",
                self._storage.experiment_fs_path,
            )
            raise
        except TrainingFailedError as error:
            self._validations.stop()
            run_state.close("failed", str(error))
            raise
        finally:
            if shown is not None:
                shown.close()
        run_state.close("finished")
        return run_state.result()

    # ------------------------------------------------------------ attempts

    def _attempt(self) -> bool:
        """Train with one group of workers; return whether the run has finished.

        Raises:
            WorkerGroupError: Workers failed more than `max_failures` times.
        """
        context, function = self._context, self._put_function()
        size = elasticity.choose_size(context.scaling_config)
        try:
            group = WorkerGroup(
                context.scaling_config,
                size,
                context.run_config.worker_runtime_env,
                [*context.backend_config.preload, *(_DATA_MODULES if context.datasets else ())],
                variables.number("TRAIN_WORKER_GROUP_START_TIMEOUT_S", START_TIMEOUT_S, at_least=0),
            )
        except RayActorError as error:
            raise ControllerError(error) from error
        if group.is_in_process:
            group.shutdown()
            self._train_without_workers(size)
            return True
        attempt = Attempt(context, self._run_state, group, self._validations)
        try:
            failures = attempt.run(function)
        finally:
            group.shutdown(attempt.ended)
            self._run_state.description.group_ended()
            self._run_state.drop_unfinished()
        if attempt.resize_to is not None:
            self._run_state.progress.state = "growing"
            log.info("resizing the group from %d to %d workers", size, attempt.resize_to)
            return False
        if not failures:
            return True
        self._count_failure(failures)
        return False

    def _put_function(self) -> Any:
        """Return a reference to the training function and its context manager, serialized once.

        Raises:
            TypeError: The function cannot be serialized; the error names the reason.
        """
        if self._function_ref is None:
            try:
                self._function_ref = skate.put(
                    (self._function, self._context.backend_config.train_func_context)
                )
            except TypeError as error:
                raise TypeError(f"the training function was found to be non-serializable: {error}") from error
        return self._function_ref

    def _train_without_workers(self, size: int) -> None:
        """Train in this process, because the engine has no others.

        Raises:
            TrainingFailedError: Several workers would have to run at the same time.
        """
        if size > 1:
            raise TrainingFailedError(
                f"{size} workers must run at the same time, and the inline engine has one process: use "
                "skate.init(engine='local'), or ScalingConfig(num_workers=1) to debug the training function here"
            )
        self._train_in_process()

    def _train_in_process(self) -> None:
        in_process.train(self._context, self._run_state, self._validations, self._function, self._local_group)

    def _count_failure(self, failures: Mapping[int, Failure]) -> None:
        """Count the failure of an attempt; raise if there were too many."""
        record, progress = self._run_state.record, self._run_state.progress
        record.failures += 1
        progress.failures, progress.state = record.failures, "restarting"
        failures = causes.order_by_cause(failures)
        errors = {rank: failure.portable for rank, failure in failures.items()}
        for callback in self._context.run_config.callbacks or ():
            callback.after_exception(self._context, errors)
        config = self._context.run_config.failure_config
        assert config is not None
        most = config.max_failures
        text = causes.describe(failures)
        if 0 <= most < record.failures:
            raise WorkerGroupError(text, errors) from next(iter(errors.values()))
        start = self._run_state.start_from
        log.warning(
            "%s\nfailure %d of %s: restarting from %s",
            text,
            record.failures,
            most if most >= 0 else "any number",
            "the beginning" if start is None else start.path,
        )
