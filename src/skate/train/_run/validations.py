"""Validates checkpoints, one at a time, in tasks that run beside the training."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._config.validation_config import ValidationConfig
from skate.train._reports.report_ledger import KeptCheckpoint, Status
from skate.train._run import event_loop
from skate.train._run.run_state import RunState

log = logging.getLogger(__name__)

_START_CHECK_INTERVAL_S = 1.0  # after which a task that has not started is checked
_WORKER_START_TIMEOUT_S = 10.0  # within which a worker for it starts, if its resources are free
_STARTED = None  # the first value of the task's stream, before the metrics
_RESOURCES = ("num_cpus", "num_gpus", "memory", "resources")
# A task with one of these options cannot run on the processors of workers that wait for it.
_CANNOT_BORROW = ("num_gpus", "resources", "memory", "scheduling_strategy", "label_selector")


class Validations:
    """Runs the pending validations of a run; an event source.

    A checkpoint whose validation has not ended when the run ends early stays pending in the run's record, and is
    validated when the run resumes.

    A validation task needs processors, and the workers that wait for its result may hold all of them. In that case it
    runs on theirs.

    Args:
        config: How to validate; None to validate nothing.
        run_state: Provides the checkpoints, and takes the results.
        cpus: The number of processors of each worker.
    """

    def __init__(self, config: ValidationConfig | None, run_state: RunState, cpus: float = 0.0) -> None:
        self._config = config
        self._run_state = run_state
        self._cpus = cpus
        self._running: tuple[Any, KeptCheckpoint] | None = None
        self._has_started = False
        self._submitted_at = 0.0  # on the monotonic clock
        self._deadline: float | None = None
        self._waiting: list[int] = []
        self._warned_of: int | None = None  # the checkpoint whose late validation was logged
        self._next_check: float | None = None  # of whether the task has started, on the monotonic clock

    # ------------------------------------------------------------ event source

    @property
    def refs(self) -> list[Any]:
        """The running task."""
        return [] if self._running is None else [self._running[0]]

    @property
    def wake_at(self) -> float | None:
        """When the task times out, or when to check whether it has started, on the monotonic clock."""
        return min((each for each in (self._deadline, self._next_check) if each is not None), default=None)

    def on_ready(self, ref: Any) -> None:
        """Handle the start or the result of the task."""
        assert self._running is not None
        _, checkpoint = self._running
        try:
            metrics = skate.get(next(ref))
        except RayError as error:
            self._clear()
            log.warning("the validation of %s failed; training continues: %s", checkpoint.name, error)
            self._run_state.validated(checkpoint.index, Status.VALIDATION_FAILED)
            return
        if metrics is _STARTED:
            self._has_started, self._next_check = True, None
            return
        self._clear()
        self._run_state.validated(checkpoint.index, Status.VALIDATED, metrics)

    def poll(self) -> None:
        """Cancel a task that takes too long, and submit the next one."""
        if self._running is not None and self._deadline is not None and time.monotonic() >= self._deadline:
            ref, checkpoint = self._running
            self._clear()
            skate.cancel(ref, force=True)
            log.warning("the validation of %s takes too long: cancelled", checkpoint.name)
            self._run_state.validated(checkpoint.index, Status.VALIDATION_TIMEOUT)
        if self._running is None and self._config is not None:
            pending = next(iter(self._run_state.pending), None)
            if pending is not None:
                self._submit(self._config, pending)
        if self._next_check is not None and time.monotonic() >= self._next_check:
            self._check_started()

    def _submit(self, config: ValidationConfig, checkpoint: KeptCheckpoint, **overrides: float) -> None:
        arguments, timeout = config.arguments(checkpoint.validation or {})
        task = skate.remote(_validate)
        ref = task.options(**{**config.ray_remote_kwargs, **overrides}).remote(
            config.fn, self._run_state.checkpoint(checkpoint), arguments
        )
        self._running, self._has_started, self._submitted_at = (ref, checkpoint), False, time.monotonic()
        self._deadline = None if timeout is None else self._submitted_at + timeout
        check_at = self._submitted_at + _START_CHECK_INTERVAL_S
        self._next_check = check_at if self._waiting and not overrides else None

    def _clear(self) -> None:
        self._running = self._deadline = self._next_check = None

    # ------------------------------------------------------------ workers that wait

    def set_waiting_ranks(self, ranks: list[int]) -> None:
        """Set which workers are blocked until validations end.

        Args:
            ranks: All workers that wait now.
        """
        if ranks and not self._waiting and self._running is not None and not self._has_started:
            self._next_check = time.monotonic() + _START_CHECK_INTERVAL_S
        self._waiting = ranks

    def _check_started(self) -> None:
        """Log why a task that workers wait for has not started; let it use their processors if it needs those."""
        self._next_check = None
        if self._running is None or self._config is None or not self._waiting:
            return
        ref, checkpoint = self._running
        if skate.wait([ref], timeout=0)[0]:
            return  # it has just started
        options = {"num_cpus": 1, **self._config.ray_remote_kwargs}
        free = skate.available_resources().get("CPU", 0.0)
        now = time.monotonic()
        if free >= options["num_cpus"] and now < self._submitted_at + _WORKER_START_TIMEOUT_S:
            self._next_check = now + _START_CHECK_INTERVAL_S  # its worker is probably starting
            return
        text = (
            f"ranks {self._waiting} wait for the validation of {checkpoint.name}, which has not started: it needs "
            f"{ {each: options[each] for each in _RESOURCES if each in options} }, and {free:g} CPUs are free"
        )
        if options["num_cpus"] <= self._cpus * len(self._waiting) and not any(
            map(options.get, _CANNOT_BORROW)
        ):
            log.info("%s. It runs on their processors", text)
            self._clear()
            skate.cancel(ref, force=True)
            self._submit(self._config, checkpoint, num_cpus=0)
            return
        if self._warned_of != checkpoint.index:
            log.warning(text)
            self._warned_of = checkpoint.index
        self._next_check = (
            now + _START_CHECK_INTERVAL_S
        )  # further workers may start to wait, and lend processors

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Wait until all checkpoints are validated."""
        self._waiting = []
        self.poll()
        while self._running is not None:
            self._run_state.progress.state = f"validating {self._running[1].name}"
            event_loop.run_once([self])
            self.poll()

    def stop(self) -> None:
        """Cancel the running task; its checkpoint stays pending."""
        if self._running is not None:
            ref, _ = self._running
            self._clear()
            skate.cancel(ref, force=True)


def _validate(
    function: Callable[..., dict[str, Any]], checkpoint: Any, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Yield, in a task, a value when it starts, and then the metrics of a checkpoint."""
    yield _STARTED
    metrics = function(checkpoint, **arguments)
    if not isinstance(metrics, dict):
        raise TypeError(f"a validation function returns a dict of metrics, not {type(metrics).__name__}")
    yield metrics
