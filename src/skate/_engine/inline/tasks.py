"""Tasks: they run where they are submitted, or as soon as their arguments and resources are ready."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.accelerators import device_variables
from skate._base.exports import Export, TaskFunction
from skate._base.options import ActorOptions, TaskOptions
from skate._base.serialization import loads
from skate._engine.common import error_types, failures
from skate._engine.common.calls import count_of, label_selectors, placement
from skate._engine.common.outcomes import exit_code, matches, task_error
from skate._engine.common.resources import Grant
from skate._engine.common.states import QUEUED, RUNNING, TASK_HISTORY
from skate._engine.common.traced_calls import traced_function
from skate._engine.inline.calls import Arguments, Invocation
from skate._engine.inline.context import Running, Spec, current
from skate._engine.inline.execution import Execution
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress, is_deadlock
from skate._engine.inline.scheduler import Scheduler
from skate._engine.inline.streams import Stream


class CachedSubmission(NamedTuple):
    """The specification and code of a remote function, cached for later submissions."""

    owner: Tasks
    spec: Spec
    returns: int
    function: Callable[..., Any]


class Tasks:
    """Submits and runs tasks, and keeps their history."""

    def __init__(
        self,
        objects: Objects,
        progress: Progress,
        scheduler: Scheduler,
        execution: Execution,
        factory: ids.IdFactory,
        new_stream: Callable[[Invocation], Stream],
    ) -> None:
        self._objects = objects
        self._progress = progress
        self._scheduler = scheduler
        self._execution = execution
        self._ids = factory
        self._new_stream = new_stream
        self.table: dict[bytes, Invocation] = {}
        self.history: deque[dict[str, Any]] = deque(maxlen=TASK_HISTORY)
        self._functions: dict[bytes, Callable[..., Any]] = {}  # functions of unfinished tasks
        self._grants: dict[bytes, Grant] = {}

    # ------------------------------------------------------------ submission

    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Submit a task; return its reference or references."""
        cached = function.submission_cache
        if cached is None or cached[0] is not self:
            cached = self._cache_submission(function)
        _, spec, count, code = cached
        options = function.options
        call = Invocation(
            self._objects,
            self._ids.task(),
            spec.name,
            "NORMAL_TASK",
            spec,
            Arguments(self._objects, args, kwargs, function.export.name),
        )
        call.retries_left = options.effective_max_retries
        call.retry = options.effective_retry_exceptions
        result = call.return_value(count, options, self._new_stream)
        self.table[call.id] = call
        self._functions[call.id] = code
        assert call.arguments is not None
        if call.arguments.when_complete(lambda: self._progress.add(lambda: self._place(call))):
            self._place(call)
        return result

    def _cache_submission(self, function: TaskFunction) -> CachedSubmission:
        options = function.options
        spec = make_spec(
            function.export, options, self._execution.environments.merge_job_environment(options.runtime_env)
        )
        count = count_of(options.num_returns, generator=function.is_generator)
        code = traced_function(loads(function.export.code), function.export.module, function.export.name)
        cached = CachedSubmission(self, spec, count, code)
        if current.get() is None:  # elsewhere, group and environment depend on the submitter
            function.submission_cache = cached
        return cached

    def _place(self, call: Invocation) -> None:
        """Run a task whose arguments are ready, unless it has to wait for resources."""
        if call.done:
            return
        assert call.arguments is not None
        broken = call.arguments.broken()
        why = self._scheduler.why_impossible(call.spec)
        if broken is None and not why:
            self._begin(call)
            return
        if broken is not None:
            call.fail_with(broken)
        else:
            call.fail(Value.failure(failures.unschedulable(call.name, why)))
        self.finish(call)

    def _begin(self, call: Invocation) -> None:
        with self._scheduler.lend_cpus():
            grant = self._scheduler.take(call.spec)
            if grant is None:
                call.state = QUEUED
                self._scheduler.wait(call.id, call.spec, lambda grant: self._run(call, grant))
            else:
                self._run(call, grant)

    # ------------------------------------------------------------ running

    def _run(self, call: Invocation, grant: Grant) -> None:
        self._grants[call.id] = grant
        try:
            if call.done:
                return
            call.state = RUNNING
            running = Running(call.id, call.name, call.spec)
            running.grant = grant
            settings = self._execution.environments.settings_for(
                call.spec.environment, device_variables(grant.device_ids())
            )
            if call.stream is not None:
                self._execution.stream(call, self, running, settings)
            else:
                self._execution.run(call, self, running, settings)
        except exceptions.RuntimeEnvSetupError as error:
            call.fail(Value.error(error))
        finally:
            if call.done:
                self.finish(call)

    def function(self, call: Invocation) -> Callable[..., Any]:
        """Return the function of a task."""
        return self._functions[call.id]

    def handle_error(self, call: Invocation, error: BaseException) -> bool:
        """Settle a task that raised, or return True to run it again."""
        if call.cancelled:
            call.fail(call.cancellation(error))
        elif isinstance(error, SystemExit):
            # In a separate process, it would have ended that process.
            if call.spend_retry():
                return True
            call.fail(Value.failure(failures.worker_crashed(call.name, os.getpid(), exit_code(error), ())))
        elif matches(error, call.retry) and not is_deadlock(error) and call.spend_retry():
            return True
        else:
            call.error_type = error_types.EXECUTION
            call.fail(Value.error(task_error(error, call.name)))
        return False

    def record(self, call: Invocation) -> None:
        """Add a finished task or call to the history, unless its options disable it."""
        if call.recorded:
            self.history.append(call.row())

    def finish(self, call: Invocation) -> None:
        """Drop a finished task, and return its resources."""
        if self.table.pop(call.id, None) is not None:
            self.record(call)
        self._functions.pop(call.id, None)
        self._scheduler.forget(call.id)
        grant = self._grants.pop(call.id, None)
        if grant is not None:
            self._scheduler.give(grant)

    # ------------------------------------------------------------ cancellation

    def cancel(self, call: Invocation) -> None:
        """Cancel a task: a waiting one does not start, a generator stops, a running one is marked."""
        call.cancelled = True
        running = call.running
        if running is not None:
            running.cancelled = True
        if call.stream is None and running is not None:
            return  # it is further down the stack, or in another thread, and cannot be stopped
        stop = call.stream.on_closed if call.stream is not None else None
        call.fail(call.cancellation())
        if stop is not None:
            stop()
        else:
            self.finish(call)

    def group_gone(self, group: bytes) -> None:
        """End the tasks that wait in a removed placement group."""
        error = Value.failure(failures.group_removed(actor=False))
        for call in list(self.table.values()):
            if call.spec.group == group:
                call.fail(error)
                self.finish(call)


def make_spec(export: Export, options: TaskOptions | ActorOptions, environment: dict[str, Any]) -> Spec:
    """Return the common part of all calls of a function, or of an actor's methods."""
    submitter = current.get()
    where = placement(options, None if submitter is None else submitter.template)
    labels, choices = label_selectors(options)
    task_name = options.name if isinstance(options, TaskOptions) else None
    return Spec(
        name=task_name or export.name,
        module=export.module,
        qualname=export.qualname,
        resources=options.effective_resources,
        group=where.group,
        bundle=where.bundle,
        capture_children=where.capture_children,
        node=where.node,
        events=options.effective_enable_task_events,
        labels=labels,
        label_choices=choices,
        environment=environment,
    )
