"""The session of a trial: `report` and `get_checkpoint` in a trainable function.

The function runs in another thread. Each report passes the metrics on, and waits until the controller has decided
whether the trial continues.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from skate.tune._workers.function_thread import FunctionThread
from skate.tune._workers.messages import Assignment, Report, Step, WorkerSettings
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.result import DEFAULT_METRIC

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune._workers.checkpoint_store import CheckpointStore

log = logging.getLogger("skate.tune")

STOP_TIMEOUT_S = 10.0  # for a function that is told to stop at its next report

_current: ContextVar[TrialSession | None] = ContextVar("trial session", default=None)
_sessions: list[TrialSession] = []  # of this process; one, except with the inline engine


class TrialStopped(SystemExit):
    """Raised by `report` to end a function whose trial is over."""


class TrialSession:
    """Runs a trainable function step by step.

    Args:
        function: The function; it is called with the configuration.
        assignment: The trial.
        settings: The settings of the experiment.
        resources: The resources of the trial.
        thread: Runs the function.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any]], Any],
        assignment: Assignment,
        settings: WorkerSettings,
        resources: PlacementGroupFactory,
        thread: FunctionThread,
    ) -> None:
        self.assignment = assignment
        self.settings = settings
        self.resources = resources
        self._checkpoint: Checkpoint | None = None
        self._function = function
        self._condition = threading.Condition()
        self._report: Report | None = None
        self._may_run = False
        self._stopping = False
        self._started = False
        self._ended = False
        self._error: BaseException | None = None
        self._at_end: list[Callable[[bool], None]] = []
        self._thread = thread
        _sessions.append(self)

    @functools.cached_property
    def _store(self) -> CheckpointStore:
        from skate.tune._workers.checkpoint_store import CheckpointStore

        return CheckpointStore(self.assignment, self.settings.storage)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint of the trial."""
        if self._checkpoint is None and self.assignment.checkpoint is not None:
            self._checkpoint = self._store.open(self.assignment.checkpoint)
        return self._checkpoint

    def step(self, at_start: Callable[[], None]) -> Step:
        """Let the function run until it reports or ends.

        Args:
            at_start: Called once, while the function runs its first step.

        Raises:
            BaseException: The exception of the function.
        """
        if self._started:
            with self._condition:
                self._may_run = True
                self._condition.notify_all()
        else:
            self._started = self._may_run = True
            self._thread.run(self._run)
            at_start()
        with self._condition:
            self._condition.wait_for(lambda: self._report is not None or self._ended)
            report, self._report = self._report, None
        if self._ended:
            self._close()
            if self._error is not None:
                raise self._error
        return Step(report, self._ended)

    def stop(self) -> bool:
        """End the function at its next report. Return whether it has ended."""
        with self._condition:
            self._stopping = self._may_run = True
            self._condition.notify_all()
            has_ended = not self._started or self._condition.wait_for(lambda: self._ended, STOP_TIMEOUT_S)
        self._close()
        return has_ended

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        """Pass metrics to the controller, and wait for the decision to continue."""
        name = None if checkpoint is None else self._store.store(checkpoint)
        if name is not None:
            self._checkpoint = self._store.open(self._store.path_of(name))
        with self._condition:
            self._report = Report(dict(metrics), name)
            self._may_run = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._may_run)
            if self._stopping:
                raise TrialStopped(0)

    def at_end(self, action: Callable[[bool], None]) -> None:
        """Call `action` after the function has ended, before its end is reported, with whether it failed."""
        self._at_end.append(action)

    def _run(self) -> None:
        token = _current.set(self)
        try:
            value = self._function(self.assignment.config)
            if inspect.isgenerator(value):
                for each in value:
                    self.report(_metrics_of(each), None)
            elif value is not None:
                with self._condition:  # without waiting for a decision
                    self._report = Report(_metrics_of(value))
        except TrialStopped:
            pass
        except BaseException as error:
            self._error = error
        finally:
            _current.reset(token)
            with self._condition:
                self._ended = True
                self._condition.notify_all()

    def _close(self) -> None:
        if self in _sessions:
            _sessions.remove(self)
        while self._at_end:
            try:
                self._at_end.pop()(self._error is not None)
            except Exception:
                log.exception(
                    "trial %s: an action after the end of its function failed", self.assignment.trial_name
                )


def _metrics_of(value: Any) -> dict[str, Any]:
    """Return the metrics of a value that a trainable function returns or yields."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, int | float):
        return {DEFAULT_METRIC: value}
    raise TypeError(
        f"the trainable function returned {value!r}: it must return a dictionary of metrics, a number or None. "
        "Call skate.tune.report(), or yield dictionaries, to report metrics several times."
    )


def current_session() -> TrialSession | None:
    """Return the session of the trial that runs in this thread or, in other threads, in this process."""
    session = _current.get()
    if session is None and len(_sessions) == 1:
        return _sessions[0]
    return session


def need_session(name: str) -> TrialSession:
    """Return the session of the current trial.

    Raises:
        RuntimeError: No trial runs here.
    """
    session = current_session()
    if session is None:
        raise RuntimeError(
            f"`{name}` must be called in a trainable function that Tuner.fit() runs; in this process ({os.getpid()}) "
            "no trial is running."
        )
    return session
