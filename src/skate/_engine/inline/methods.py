"""Calls of actors' methods: in order, with the actor's concurrency, in place or in its event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.exports import MethodInfo
from skate._base.options import MethodOptions
from skate._base.serialization import dumps
from skate._engine.common import error_types
from skate._engine.common.calls import count_of
from skate._engine.common.failures import DIED, RESTARTS
from skate._engine.common.outcomes import ExitRequest, exit_code, matches, task_error
from skate._engine.common.states import ALIVE, DEAD, RESTARTING, RUNNING, SUBMITTED
from skate._engine.common.traced_calls import traced_method
from skate._engine.inline.actors import EXITED, Actor, Actors, SelfKilled
from skate._engine.inline.calls import Arguments, Invocation
from skate._engine.inline.context import caller
from skate._engine.inline.environments import ProcessSettings
from skate._engine.inline.execution import Execution
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress, is_deadlock
from skate._engine.inline.scheduler import Scheduler
from skate._engine.inline.streams import Stream


class MethodCall(Invocation):
    """One call of a method."""

    __slots__ = ("claimed", "coroutine", "group", "method")

    claimed: bool  # whether the actor, or its event loop, runs it
    coroutine: Any  # the asyncio task that runs it
    group: str
    method: str


class Methods:
    """Submits calls, and runs them on their actors."""

    def __init__(
        self,
        objects: Objects,
        progress: Progress,
        scheduler: Scheduler,
        execution: Execution,
        factory: ids.IdFactory,
        actors: Actors,
        new_stream: Callable[[Invocation], Stream],
    ) -> None:
        self._objects = objects
        self._progress = progress
        self._scheduler = scheduler
        self._execution = execution
        self._ids = factory
        self._actors = actors
        self._new_stream = new_stream
        self.start_coroutine: Callable[[Actor, MethodCall, ActorCallOwner], None]  # set by the engine

    # ------------------------------------------------------------ submission

    def submit(
        self,
        actor: Actor,
        method: MethodInfo,
        options: MethodOptions,
        arguments: Arguments,
        keep: Any,
        retries: int,
    ) -> Any:
        """Submit a call to an actor; return its reference or references."""
        name = options.name or f"{actor.class_name}.{method.name}"
        call = MethodCall(self._objects, self._ids.call(actor.id), name, "ACTOR_TASK", actor.spec, arguments)
        call.method = method.name
        call.group = actor.group_of(method.name, options.concurrency_group)
        call.claimed = False
        call.coroutine = None
        call.keep = keep
        call.retries_left = retries
        call.retry = options.effective_retry_exceptions
        count = count_of(options.num_returns, generator=method.is_generator)
        result = call.return_value(count, options, self._new_stream)
        if actor.state is DEAD:
            assert actor.error is not None
            call.fail(actor.error)
        elif actor.state is RESTARTING and not retries:
            call.fail(_unavailable(actor, RESTARTS))
        else:
            self._enqueue(actor, call)
        return result

    def _enqueue(self, actor: Actor, call: MethodCall) -> None:
        actor.calls[call.id] = call
        with self._progress.lock:
            actor.queues.setdefault(caller() if actor.in_order else call.id, deque()).append(call)
        assert call.arguments is not None
        if call.arguments.when_complete(lambda: self._progress.add(lambda: self.pump(actor))):
            self.pump(actor)

    # ------------------------------------------------------------ running calls

    def pump(self, actor: Actor) -> None:
        """Run the calls that the actor may run now."""
        while True:
            with self._progress.lock:
                call = self._claim(actor)
            if call is None:
                break
            self._begin(actor, call)
        if actor.loop is not None:
            actor.loop.run()

    def _claim(self, actor: Actor) -> MethodCall | None:
        if actor.state is not ALIVE:
            return None
        self._promote(actor)
        for position, call in enumerate(actor.ready):
            if actor.running[call.group] < actor.limits[call.group]:
                del actor.ready[position]
                actor.running[call.group] += 1
                call.claimed = True
                call.state = SUBMITTED
                return call
        return None

    @staticmethod
    def _promote(actor: Actor) -> None:
        """Move calls whose arguments are ready, and which are next for their caller, to the ready ones."""
        for key, queue in list(actor.queues.items()):
            while queue:
                arguments = queue[0].arguments
                if arguments is not None and arguments.missing() and arguments.broken() is None:
                    break
                actor.ready.append(queue.popleft())
            if not queue:
                del actor.queues[key]

    def _begin(self, actor: Actor, call: MethodCall) -> None:
        owner = ActorCallOwner(self, self._actors, actor)
        broken = None if call.arguments is None else call.arguments.broken()
        if broken is not None:
            call.fail_with(broken)
        if call.done:
            owner.finish(call)
            return
        if actor.is_async:
            self.start_coroutine(actor, call, owner)
            return
        call.state = RUNNING
        running = actor.new_running(call.id, call.name)
        try:
            with self._scheduler.lend_cpus():
                if call.stream is not None:
                    self._execution.stream(call, owner, running, actor.settings)
                else:
                    self._execution.run(call, owner, running, actor.settings)
        finally:
            if call.stream is None:
                owner.finish(call)

    def release(self, actor: Actor, call: MethodCall) -> None:
        """Remove a call from the running ones, so that others may run."""
        with self._progress.lock:
            if call.claimed:
                call.claimed = False
                actor.running[call.group] -= 1
        if call.done:
            self.forget(actor, call)
        if actor.ready or actor.queues:
            self._progress.add(lambda: self.pump(actor))

    def forget(self, actor: Actor, call: MethodCall) -> None:
        """Record a finished call for the state API, and end an actor that waited for it."""
        if actor.calls.pop(call.id, None) is not None:
            self._actors.record(call)
            self._actors.end_if_left(actor)

    # ------------------------------------------------------------ cancellation

    def cancel(self, actor: Actor, call: MethodCall) -> None:
        """Cancel a call: a waiting one does not run, a coroutine is cancelled, a generator stops."""
        call.cancelled = True
        if call.running is not None:
            call.running.cancelled = True
        if not call.claimed:
            self.fail(actor, call, call.cancellation())
        elif call.coroutine is not None:
            call.coroutine.cancel()
            if actor.loop is not None:
                actor.loop.due = True
                actor.loop.run()
        elif call.stream is not None:
            self.fail(actor, call, call.cancellation())

    def fail(self, actor: Actor, call: MethodCall, error: Value) -> None:
        """End a call with an error, in any state."""
        stop = None if call.stream is None else call.stream.on_closed
        call.fail(error)
        if call.coroutine is not None:
            call.coroutine.cancel()
        elif stop is not None:
            stop()
        if not call.claimed:
            with self._progress.lock:
                for queue in (actor.ready, *actor.queues.values()):
                    if call in queue:
                        queue.remove(call)
            self.forget(actor, call)

    def lost(self, actor: Actor) -> None:
        """Retry or fail the calls of an actor that is about to restart."""
        error = _unavailable(actor, DIED)
        again = []
        with self._progress.lock:
            waiting, actor.ready = set(actor.ready), deque()
        for call in [call for call in actor.calls.values() if call.claimed or call in waiting]:
            if call.stream is None and call.spend_retry():
                call.coroutine = None
                again.append(call)
            else:
                self.fail(actor, call, error)
            call.claimed = False
        with self._progress.lock:
            actor.ready.extendleft(reversed(again))
            actor.running = dict.fromkeys(actor.limits, 0)


class ActorCallOwner:
    """An actor as the owner of its calls, until it restarts."""

    def __init__(self, methods: Methods, actors: Actors, actor: Actor) -> None:
        self._methods = methods
        self._actors = actors
        self._actor = actor
        self._incarnation = actor.restarts

    @property
    def is_current(self) -> bool:
        """Whether the actor has not restarted since."""
        return self._actor.restarts == self._incarnation

    @property
    def settings(self) -> ProcessSettings:
        """The process settings of the actor."""
        return self._actor.settings

    def function(self, call: Invocation) -> Callable[..., Any]:
        """Return the method to call."""
        assert isinstance(call, MethodCall)
        return traced_method(self._bind(call.method), self._actor.class_name, call.method)

    def _bind(self, name: str) -> Callable[..., Any]:
        instance = self._actor.instance
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_call__":
            return lambda function, *args, **kwargs: function(instance, *args, **kwargs)
        if name == "__ray_terminate__":
            return _terminate
        method: Callable[..., Any] | None = getattr(instance, name, None)
        if method is None:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {name!r}")
        return method

    def handle_error(self, call: Invocation, error: BaseException) -> bool:
        """Settle a call that raised, or return True to run it again."""
        actor = self._actor
        if isinstance(error, SelfKilled):
            pass  # the kill has settled the call
        elif call.cancelled:
            call.fail(call.cancellation(error))
        elif isinstance(error, ExitRequest):
            call.leave(self._actors.death_error(actor, EXITED))
            self._actors.leave(actor, EXITED)
        elif isinstance(error, SystemExit):
            reason = "The actor's method ended the interpreter."
            if call.stream is not None or not call.retries_left:
                end = call.fail if exit_code(error) else call.leave
                end(self._actors.death_error(actor, reason, code=exit_code(error)))
            self._actors.lose(actor, reason, code=exit_code(error))
        elif matches(error, call.retry) and not is_deadlock(error) and call.spend_retry():
            return True
        else:
            call.error_type = error_types.EXECUTION
            call.fail(Value.error(task_error(error, call.name, actor.instance, actor.id)))
        return False

    def finish(self, call: Invocation) -> None:
        """Handle the end of a call."""
        assert isinstance(call, MethodCall)
        if self.is_current:
            self._methods.release(self._actor, call)
        elif call.done:
            self._methods.forget(self._actor, call)


def _unavailable(actor: Actor, text: str) -> Value:
    return Value.failure(dumps(exceptions.ActorUnavailableError(text, actor.id)))


def _terminate() -> None:
    raise ExitRequest(0)
