"""Drives a run: starts workers, and starts them again from the latest checkpoint when they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import skate
from skate._api import variables
from skate.exceptions import RayActorError
from skate.train._failures import causes
from skate.train._failures.causes import Failure
from skate.train._failures.errors import ControllerError, TrainingFailedError, WorkerGroupError
from skate.train._run import elasticity, here
from skate.train._run.attempt import Attempt
from skate.train._run.journal import Journal
from skate.train._run.run_context import RunContext
from skate.train._run.validation import Validations
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._storage.run_folder import Storage
from skate.train._views import progress
from skate.train._workers.company import Company
from skate.train._workers.group import WorkerGroup

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0  # for the resources of a group to become free; a variable may set another one
_DATA = ["skate.data._preloaded"]  # what workers need who read datasets


class Controller:
    """One run, from its first worker to its result.

    Args:
        context: What the run was set up with.
        function: The training function, which takes nothing.
        storage: The run's folder.
        resume_from: A checkpoint to begin with.
        company: Those who train with this process, if there are no workers.
    """

    def __init__(
        self,
        context: RunContext,
        function: Callable[[], Any],
        storage: Storage,
        resume_from: Checkpoint | None = None,
        company: Company | None = None,
    ) -> None:
        self._context = context
        self._company = company or Company()
        self._function = function
        self._function_ref: Any = None
        self._storage = storage
        self._journal = Journal(context, storage, resume_from)
        self._validations = Validations(
            context.validation_config if storage.keeps else None,
            self._journal,
            context.scaling_config.bundle.get("CPU", 0),
        )

    def run(self) -> Result:
        """Train, and return what came of it.

        Raises:
            TrainingFailedError: The run failed, more often than it may.
            KeyboardInterrupt: The user has ended it; it can be gone on with.
        """
        journal = self._journal
        self._storage.prepare()
        journal.go_on(self._company.share)
        lines = progress.shown(journal.standing) if self._storage.keeps else None
        try:
            if self._context.scaling_config.max_workers == 0:
                here.train(self._context, journal, self._validations, self._function, self._company)
            else:
                while not self._attempt():
                    pass
            self._validations.finish()
        except KeyboardInterrupt:
            self._validations.stop()
            journal.close("interrupted")
            log.warning(
                "interrupted: the run goes on from its latest checkpoint when it is run again: %s",
                self._storage.experiment_fs_path,
            )
            raise
        except TrainingFailedError as error:
            self._validations.stop()
            journal.close("failed", str(error))
            raise
        finally:
            if lines is not None:
                lines.stop()
        journal.close("finished")
        return journal.result()

    # ------------------------------------------------------------ attempts

    def _attempt(self) -> bool:
        """Train with one group of workers; tell whether the run has finished.

        Raises:
            WorkerGroupError: Workers failed, and it was once too often.
        """
        context, function = self._context, self._shared()
        size = elasticity.size_now(context.scaling_config)
        try:
            group = WorkerGroup(
                context.scaling_config,
                size,
                context.run_config.worker_runtime_env,
                [*context.backend_config.preload, *(_DATA if context.datasets else ())],
                variables.number("TRAIN_WORKER_GROUP_START_TIMEOUT_S", START_TIMEOUT_S, at_least=0),
            )
        except RayActorError as error:
            raise ControllerError(error) from error
        if group.is_here:
            group.end()
            self._instead_of(size)
            return True
        attempt = Attempt(context, self._journal, group, self._validations)
        try:
            failures = attempt.run(function)
        finally:
            group.end(attempt.ended)
            self._journal.drop_unfinished()
        if attempt.outgrown_by is not None:
            self._journal.standing.state = "growing"
            log.info("there is room for %d workers in place of %d", attempt.outgrown_by, size)
            return False
        if not failures:
            return True
        self._count(failures)
        return False

    def _shared(self) -> Any:
        """Return a reference to the training function and what it runs in: serialised once, before workers start.

        Raises:
            TypeError: It cannot be; names what in it cannot.
        """
        if self._function_ref is None:
            try:
                self._function_ref = skate.put(
                    (self._function, self._context.backend_config.train_func_context)
                )
            except TypeError as error:
                raise TypeError(f"the training function was found to be non-serializable: {error}") from error
        return self._function_ref

    def _instead_of(self, size: int) -> None:
        """Train without workers, because the engine has but one process.

        Raises:
            TrainingFailedError: Several would have to run at the same time.
        """
        if size > 1:
            raise TrainingFailedError(
                f"{size} workers have to run at the same time, and the inline engine has one process: use "
                "skate.init(engine='local'), or ScalingConfig(num_workers=1) to debug the training function here"
            )
        here.train(self._context, self._journal, self._validations, self._function, self._company)

    def _count(self, failures: Mapping[int, Failure]) -> None:
        """Note that workers have failed; go on, or raise."""
        record, standing = self._journal.record, self._journal.standing
        record.failures += 1
        standing.failures, standing.state = record.failures, "starting again"
        failures = causes.ordered(failures)
        errors = {rank: failure.portable for rank, failure in failures.items()}
        for callback in self._context.run_config.callbacks or ():
            callback.after_exception(self._context, errors)
        config = self._context.run_config.failure_config
        assert config is not None
        most = config.max_failures
        text = causes.told(failures)
        if 0 <= most < record.failures:
            raise WorkerGroupError(text, errors) from next(iter(errors.values()))
        start = self._journal.start_from
        log.warning(
            "%s\nfailure %d of %s: starting again from %s",
            text,
            record.failures,
            most if most >= 0 else "any number",
            "the beginning" if start is None else start.path,
        )
