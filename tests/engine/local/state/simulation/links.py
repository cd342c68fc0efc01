"""The caller's end of an actor: calls over a direct connection, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.processes import Process, Stream
    from tests.engine.local.state.simulation.workers import Worker


class DirectCall:
    """A call, with what the caller keeps until it is answered."""

    def __init__(self, task: bytes, count: int, args: bytes, caller: int) -> None:
        self.task = task
        self.count = count
        self.args = args
        self.caller = caller
        self.arguments: list[m.Argument] = []
        self.args_object = b""
        self.dependencies: list[bytes] = []
        self.results: list[bytes] = []
        self.kept: list[bytes] = []
        self.retries = 0
        self.stream: Stream | None = None


class Link:
    """The state of a process about one actor, and its calls in flight."""

    def __init__(self, process: Process, actor: bytes) -> None:
        self._process = process
        self.actor = actor
        self.state = ""
        self.error = b""
        self._incarnation = -1
        self.worker: Worker | None = None
        self.waiting: deque[DirectCall] = deque()
        self.sent: dict[bytes, DirectCall] = {}
        self._ended: dict[bytes, DirectCall] = {}  # generators that are over, but some items are on the way
        self._watching = False

    @property
    def owes(self) -> bool:
        """Return whether calls would be lost with the process."""
        return bool(self.waiting) or any(call.kept and call.stream is None for call in self.sent.values())

    def watch(self) -> None:
        """Ask the node where the actor is, once."""
        if not self._watching:
            self._watching = True
            self._process.post(m.ActorWatch(self.actor))

    def created_here(self) -> None:
        """The node tells without being asked."""
        self._watching = True

    def submit(self, call: DirectCall) -> None:
        """Send a call after all earlier ones."""
        if self.state == "DEAD":
            self._fail(call, self.error)
            return
        self.waiting.append(call)
        self.watch()
        for id in call.dependencies:
            self._process.subscribe(id)
        self.pump()

    def pump(self) -> None:
        """Send waiting calls up to one whose arguments are not there."""
        refs = self._process.refs
        while self.waiting and self.worker is not None:
            call = self.waiting[0]
            if any(refs[id].state == PENDING for id in call.dependencies):
                return
            self.waiting.popleft()
            broken = None
            for id in call.dependencies:
                reference = refs[id]
                if reference.state == ERROR:
                    broken = reference.data
                elif reference.state == SHARED:
                    call.arguments.append(m.Argument(len(call.arguments), SHARED, b"", id))
                else:
                    call.arguments.append(m.Argument(len(call.arguments), INLINE, reference.data))
            call.dependencies = []
            if broken is not None:
                self._fail(call, broken)
            else:
                self._send(call)

    def _send(self, call: DirectCall) -> None:
        assert self.worker is not None
        self.sent[call.task] = call
        self._process.world.direct(self._process, self.worker).append(call)

    def updated(self, update: m.ActorUpdate) -> None:
        """The node says where the actor is."""
        world = self._process.world
        self.state = update.state
        if update.state == "ALIVE":
            if update.incarnation != self._incarnation:
                self._disconnect()
                self._incarnation = update.incarnation
                self.worker = world.connect(update.address)
            self.pump()
        elif update.state == "DEAD":
            self.error = update.error
            self._drain()
            self._disconnect(final=True)
            waiting, self.waiting = self.waiting, deque()
            for call in waiting:
                self._fail(call, self.error)
        elif update.state == "RESTARTING":
            self._drain()
            self._disconnect()

    def _drain(self) -> None:
        """Read the replies that the actor sent before it ended."""
        if self.worker is not None:
            replies = self._process.world.direct(self.worker, self._process)
            while replies:
                reply = replies.popleft()
                if not isinstance(reply, DirectCall):  # an actor that calls itself has one queue for both
                    self.arrived(reply)

    def _disconnect(self, *, final: bool = False) -> None:
        if self.worker is not None:
            self._process.world.direct(self.worker, self._process).clear()
            self._process.world.direct(self._process, self.worker).clear()
            self.worker = None
        lost, self.sent = self.sent, {}
        again = []
        for call in lost.values():
            if final:
                self._fail(call, self.error)
            elif call.retries:
                call.retries -= 1
                again.append(call)
            else:
                self._fail(call, self._process.world.user_error())
        self.waiting.extendleft(reversed(again))

    def arrived(self, message: Any) -> None:
        """Handle a message from the actor, direct or by way of the node."""
        call = self.sent.get(message.task) or self._ended.get(message.task)
        if call is None:
            self._too_late(message)
            return
        if isinstance(message, m.CallItem):
            if call.stream is not None:
                self._item(call.stream, message.index, message.result)
                if call.stream.complete():
                    self._ended.pop(message.task, None)
            return
        del self.sent[message.task]
        if message.retry and call.retries:
            call.retries -= 1
            if self.worker is not None:
                self._send(call)
            else:
                self.waiting.append(call)
            return
        if call.stream is not None:
            for result in message.results:
                message.count += 1
                self._item(call.stream, message.count, result)
            call.stream.end(message.count)
            if not call.stream.complete():
                # Items by way of the node and items that came directly do not keep their order.
                self._ended[message.task] = call
        else:
            for id, result in zip(call.results, message.results, strict=False):
                self._settle(id, result)
        self._done(call)

    def _too_late(self, message: Any) -> None:
        """The call was given up; but the node has made us a holder of what came by way of it."""
        item = isinstance(message, m.CallItem)
        results = [message.result] if item else message.results
        for index, result in enumerate(results, message.index if item else 1):
            if result.state == SHARED or result.contains:
                self._process.unwanted(ids.object_id(message.task, index))

    @staticmethod
    def _item(stream: Stream, index: int, result: m.Result) -> None:
        known = result.state == SHARED or bool(result.contains)
        stream.add(index, result.state, result.data, known=known)

    def _settle(self, id: bytes, result: m.Result) -> None:
        process = self._process
        reference = process.refs[id]
        if result.state == SHARED or result.contains:
            reference.known = True
            process.settle(id, result.state, result.data)
        else:
            process.settle(id, result.state, result.data)
            if reference.known:  # it left this process before it was ready
                process.post(m.Register(id, result.state, result.data), [id])

    def _fail(self, call: DirectCall, error: bytes) -> None:
        process = self._process
        if call.stream is not None:
            call.stream.fail(error)
        for id in call.results:
            process.settle(id, ERROR, error)
            if process.refs[id].known:
                process.post(m.Register(id, ERROR, error), [id])
        self._done(call)

    def _done(self, call: DirectCall) -> None:
        for id in call.kept:
            self._process.let_go(id)
        call.kept = []


class LinkTable(dict[bytes, Link]):
    """The links of a process, made at first use."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def __missing__(self, actor: bytes) -> Link:
        self[actor] = link = Link(self._process, actor)
        return link
