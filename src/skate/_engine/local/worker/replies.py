"""Replies of an actor to its callers: direct, or via the node."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from skate._base.object_ref import SHARED
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.client.client import Client
    from skate._engine.local.client.task_context import TaskContext
    from skate._engine.local.worker.execution import TaskRunner
    from skate._engine.local.worker.executors import IncomingCall


class Replies:
    """Sends results and items; those that the node must register before the caller gets them are sent via the node."""

    def __init__(self, client: Client, runner: TaskRunner) -> None:
        self._client = client
        self._runner = runner
        self._parked: list[tuple[Any, Any]] = []  # loops and futures of generators that wait for readers

    def reply(self, incoming: IncomingCall, reply: m.Reply, context: TaskContext) -> None:
        """Reply to a call."""
        via_node = context.borrowed
        for result in reply.results:
            if result.state == SHARED or result.contains:
                via_node = True
        if via_node:
            self._client.channel.send(m.ReplyVia(incoming.call.caller, reply))
        else:
            self._client.channel.hub.send(incoming.connection, reply)

    def item(self, incoming: IncomingCall, index: int, result: m.Result) -> None:
        """Send an item of a generator."""
        call = incoming.call
        limited = self._runner.backpressure.is_limited(call.task)
        if result.state == SHARED or result.contains:
            self._client.channel.send(m.ReplyVia(call.caller, m.Reply(call.task, [result]), index, limited))
        else:
            self._client.channel.hub.send(incoming.connection, m.CallItem(call.task, index, result, limited))

    async def stream(self, incoming: IncomingCall, generator: Any) -> int:
        """Send the items of an asynchronous generator as fast as its reader allows; return their number."""
        import asyncio

        task = incoming.call.task
        runner = self._runner
        gate = runner.backpressure
        gate.open(task, incoming.options["window"])
        loop = asyncio.get_running_loop()
        while True:
            while not gate.may_continue(task):
                parked: asyncio.Future[None] = loop.create_future()
                self._parked.append((loop, parked))
                # The reader may have advanced in between, which woke only the earlier futures.
                if gate.may_continue(task):
                    break
                await parked
            if gate.is_closed(task):
                await generator.aclose()
                break
            gate.begin(task)
            try:
                value = await anext(generator)
            except StopAsyncIteration:
                break
            for made in runner.split_yield(value, incoming.options["per_yield"], incoming.name):
                result = runner.result(made, incoming.name)
                gate.add(task)
                self.item(incoming, gate.made(task), result)
        return gate.made(task)

    def reader_moved(self) -> None:
        """Wake the generators that wait for their readers."""
        parked, self._parked = self._parked, []
        for loop, future in parked:
            self._client.call_in_loop(loop, functools.partial(_wake, future))


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)
