"""Asynchronous actors: their calls are coroutines in an event loop per actor."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context
from typing import Any

from skate._engine.common.outcomes import ExitRequest, check_generator, exit_code, split_yield
from skate._engine.common.states import RUNNING
from skate._engine.inline.actors import Actor, Actors
from skate._engine.inline.context import Running, current
from skate._engine.inline.environments import fatal_exceptions
from skate._engine.inline.execution import Execution, interruption_error
from skate._engine.inline.loops import ActorLoop
from skate._engine.inline.methods import ActorCallOwner, MethodCall
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress


class Coroutines:
    """Runs the calls of asynchronous actors."""

    def __init__(self, objects: Objects, progress: Progress, execution: Execution, actors: Actors) -> None:
        self._objects = objects
        self._progress = progress
        self._execution = execution
        self._actors = actors

    # ------------------------------------------------------------ the actor

    def construct(self, actor: Actor) -> None:
        """Create an actor's event loop, and run the constructor in it until it waits."""

        def on_exit(error: SystemExit) -> None:
            self._actors.lose(actor, "A coroutine of the actor ended the interpreter.", code=exit_code(error))

        loop = ActorLoop(self._progress, lambda: self._execution.isolate(actor.settings), on_exit)
        actor.loop = loop
        incarnation = actor.restarts

        def ended(error: BaseException | None) -> None:
            if actor.restarts == incarnation:
                self._actors.constructed(actor, error)

        async def create() -> None:
            try:
                error = await self._actors.instantiate(actor)
            except fatal_exceptions() as interrupt:
                self._actors.interrupted(actor)
                loop.interrupt(interrupt)
            else:
                self._progress.add(lambda: ended(error))

        loop.spawn(create(), Context())
        loop.run()

    # ------------------------------------------------------------ calls

    def start(self, actor: Actor, call: MethodCall, owner: ActorCallOwner) -> None:
        """Start a call at the loop's next turn."""
        assert actor.loop is not None
        running = actor.new_running(call.id, call.name)

        def spawned(task: asyncio.Task[None]) -> None:
            call.coroutine = task
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # cancelled before it started, so that it could not report this itself
                if owner.is_current:
                    call.fail(call.cancellation())
                owner.finish(call)

        actor.loop.spawn(self._serve(actor, call, owner, running), Context(), spawned)

    async def _serve(self, actor: Actor, call: MethodCall, owner: ActorCallOwner, running: Running) -> None:
        current.set(running)
        loop = actor.loop
        assert loop is not None
        try:
            await self._run(call, owner, running)
        except asyncio.CancelledError as error:
            if owner.is_current:  # else the call runs again in the new instance
                call.fail(call.cancellation(error))
        except fatal_exceptions() as error:
            call.fail(Value.error(interruption_error(error)))
            loop.interrupt(error)
        finally:
            # A plain generator continues without this coroutine, and reports its own end.
            if call.done or call.stream is None:
                owner.finish(call)

    async def _run(self, call: MethodCall, owner: ActorCallOwner, running: Running) -> None:
        while not call.done:
            call.state = RUNNING
            call.begin(running)
            attempt = call.attempt
            try:
                values = await self._values(call, owner, running)
                if running.exiting:
                    raise ExitRequest(0)
            except (asyncio.CancelledError, *fatal_exceptions()):  # type: ignore[misc]
                raise
            except BaseException as error:
                if call.attempt != attempt or not owner.handle_error(call, error):
                    return
            else:
                if values is not None and call.attempt == attempt:
                    call.settle(values)
                return

    async def _values(self, call: MethodCall, owner: ActorCallOwner, running: Running) -> list[Value] | None:
        assert call.arguments is not None
        args, kwargs = call.arguments.load()
        function = owner.function(call)
        if call.stream is not None and inspect.isgeneratorfunction(inspect.unwrap(function)):
            self._execution.stream(call, owner, running, owner.settings)
            return None
        value = function(*args, **kwargs)
        del args, kwargs
        if call.stream is not None:
            await self._stream(call, check_generator(value, call.name))
            return None
        if inspect.isawaitable(value):
            value = await value
        return self._execution.values(call, value)

    async def _stream(self, call: MethodCall, generator: Any) -> None:
        """Yield the items of an asynchronous generator on request."""
        stream = call.stream
        assert stream is not None
        loop = asyncio.get_running_loop()
        parked: asyncio.Future[None] | None = None

        def wake() -> None:
            if parked is not None and not parked.done():
                parked.set_result(None)

        def wanted() -> None:
            if parked is not None and not parked.done():
                self._objects.call_in_loop(loop, wake)

        stream.on_closed = wanted
        stream.start(wanted)
        index = 0
        try:
            while True:
                while stream.wanted <= stream.made and not stream.closed:
                    parked = loop.create_future()
                    if stream.wanted > stream.made or stream.closed:  # another thread was faster
                        break
                    await parked
                if stream.closed:
                    break
                try:
                    value = await anext(generator)
                except StopAsyncIteration:
                    break
                for item in split_yield(value, call.per_yield, call.name):
                    index += 1
                    made = self._execution.value(item, call.name)
                    if index > stream.made:  # not an item of an earlier attempt
                        stream.add(made)
        finally:
            stream.on_wanted = None
            await generator.aclose()
        call.finish_stream()
        stream.end()
