"""The caller's connection to an actor: ordered calls over a direct socket to the actor's process."""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import Any

from skate._base import errors as exceptions
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED, ObjectRef
from skate._base.serialization import dumps, loads
from skate._engine.common.failures import DIED, RESTARTS
from skate._engine.common.outcomes import task_error
from skate._engine.local.client.client import Client
from skate._engine.local.client.stream import TaskStream
from skate._engine.local.client.wait_reports import OutstandingCalls
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection
from skate._engine.local.wire.interrupts import critical
from skate._engine.local.wire.unix_sockets import connect


class PendingCall:
    """A call without a reply."""

    __slots__ = ("call", "dependencies", "keep", "refs", "retries_left", "retry_errors", "stream")

    def __init__(self, call: m.Call, refs: list[ObjectRef[Any]], keep: list[Any]) -> None:
        self.call = call
        self.refs = refs
        self.keep = keep  # references and handles that must live until the reply
        self.dependencies: list[tuple[int | str, ObjectRef[Any]]] = []
        self.retries_left = 0
        self.retry_errors = False
        self.stream: TaskStream | None = None


class ActorLink:
    """The state of one actor as this process knows it, and its calls in flight."""

    def __init__(self, client: Client, actor: bytes, shared: LinkTable) -> None:
        self._client = client
        self._table = shared
        self.actor = actor
        self.state = ""
        self.error = b""
        self.unordered = False  # calls may overtake one whose arguments are pending
        self._incarnation = -1
        self._connection: Connection | None = None
        self._waiting: deque[PendingCall] = deque()  # not sent: no connection, or arguments pending
        self._sent: dict[bytes, PendingCall] = {}
        self._cancelled: set[bytes] = set()  # calls that were cancelled after they were sent
        self._lock = threading.RLock()
        self._watching = False

    def pending(self) -> int:
        """Return the number of calls without a reply."""
        return len(self._waiting) + len(self._sent)

    def list_calls(self, outstanding: OutstandingCalls) -> None:
        """Add the calls without a reply, and the objects that unsent calls wait for."""
        with self._lock:
            self._cancelled &= self._sent.keys()
            outstanding.sent += self._sent
            outstanding.cancelled += self._cancelled
            # Calls leave in order: the first one holds back the others.
            groups = [[each] for each in self._waiting] if self.unordered else [list(self._waiting)]
            for waiting in filter(None, groups):
                needed = [ref._id for _, ref in waiting[0].dependencies if ref._state == PENDING]
                calls = [pending.call.task for pending in waiting]
                outstanding.unsent.append((self.actor, calls, list(dict.fromkeys(needed))))

    @property
    def has_unsent_calls(self) -> bool:
        """Whether the end of this process would lose calls: unsent ones, or ones whose arguments this process holds."""
        connection = self._connection
        if self._waiting or (connection is not None and connection.backlog):
            return True
        return any(call.keep and call.stream is None for call in list(self._sent.values()))

    def watch(self) -> None:
        """Subscribe to the actor's state and address."""
        if not self._watching:
            self._watching = True
            self._client.channel.send(m.ActorWatch(self.actor))

    def created_here(self) -> None:
        """Note that the node reports this actor's state unasked, because this process created it."""
        self._watching = True

    # ------------------------------------------------------------ sending

    def submit(self, pending: PendingCall) -> None:
        """Send a call after all earlier ones."""
        self._submit(pending)
        connection = self._connection
        if connection is not None and connection.backlog:
            self._client.channel.hub.throttle(connection)

    def _submit(self, pending: PendingCall) -> None:
        with self._lock:
            if self.state == "DEAD":
                self._fail(pending, self.error)
                return
            first = not self._waiting or self.unordered
            if self._connection is not None and first and not pending.dependencies:
                self._send(pending)
                return
            self._waiting.append(pending)
            self.watch()
            for _, reference in pending.dependencies:
                if reference._state == PENDING:
                    self._client.when_ready(reference, self._pump_for)
            self._pump()

    def _pump_for(self, _: ObjectRef[Any]) -> None:
        with self._lock:
            self._pump()

    def _pump(self) -> None:
        """Send waiting calls in order, up to one whose arguments are pending; fail them while the actor restarts."""
        if self.state == "RESTARTING":
            self._fail_waiting()
            return
        waiting = self._waiting
        while waiting and self._connection is not None:
            pending = self._next_to_send()
            if pending is None:
                return
            broken = self._fill_in(pending)
            if broken is None:
                self._send(pending)
            else:
                self._fail(pending, broken)

    def _next_to_send(self) -> PendingCall | None:
        """Remove and return the next call whose arguments are ready."""
        waiting = self._waiting
        for index, pending in enumerate(waiting):
            if all(reference._state != PENDING for _, reference in pending.dependencies):
                del waiting[index]
                return pending
            if not self.unordered:
                return None
        return None

    def _fill_in(self, pending: PendingCall) -> bytes | None:
        """Put the values of dependencies into a call; return the error of one that failed."""
        for slot, reference in pending.dependencies:
            if reference._state == ERROR:
                return bytes(reference._data)
            if reference._state == SHARED:
                pending.call.arguments.append(m.Argument(slot, SHARED, b"", reference._id))
            else:
                pending.call.arguments.append(m.Argument(slot, INLINE, reference._data))
            pending.keep.append(reference)
        pending.dependencies = []
        return None

    def _send(self, pending: PendingCall) -> None:
        assert self._connection is not None
        self._sent[pending.call.task] = pending
        if pending.stream is not None:
            pending.call.taken = pending.stream.taken
        self._client.channel.hub.send(self._connection, pending.call)

    # ------------------------------------------------------------ arriving, in the reading thread

    def updated(self, update: m.ActorUpdate) -> None:
        """Handle a change of the actor's state or address."""
        with self._lock:
            self.state = update.state
            if update.state == "ALIVE":
                if update.incarnation != self._incarnation:
                    self._disconnect()
                    self._incarnation = update.incarnation
                    self._connect(update.address)
                self._pump()
            elif update.state == "DEAD":
                self.error = _as_actor_error(update.error)
                self._drain()
                self._disconnect(final=True)
                waiting, self._waiting = self._waiting, deque()
                for pending in waiting:
                    self._fail(pending, self.error)
            elif update.state == "RESTARTING":
                self._drain()
                self._disconnect()
                self._fail_waiting()

    def killed(self) -> None:
        """Mark the actor as dead without waiting for the node, because this process killed it."""
        error = exceptions.ActorDiedError(
            "The actor is dead because it was killed by `ray.kill`.", actor_id=self.actor.hex()
        )
        self.updated(m.ActorUpdate(self.actor, "DEAD", error=dumps(error)))

    def _connect(self, address: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connect(sock, address)
        except OSError:
            sock.close()  # the actor has just died; the node will report it
            return
        connection = Connection(sock, self)
        self._connection = connection
        connection.post(m.Introduce(self._client.number))
        self._client.channel.hub.add(connection)

    def _drain(self) -> None:
        """Read the replies that the actor sent before it died."""
        if self._connection is not None:
            for message in self._connection.receive_rest():
                self.arrived(message)

    def _disconnect(self, *, final: bool = False) -> None:
        """Drop the connection: retry or fail the calls in flight."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.channel.hub.remove(connection)
        lost, self._sent = self._sent, {}
        again = []
        for pending in lost.values():
            if final:
                self._fail(pending, self.error)
            elif pending.retries_left:
                if pending.retries_left > 0:
                    pending.retries_left -= 1
                pending.call.attempt += 1
                again.append(pending)
            else:
                self._fail(pending, self._unavailable(DIED))
        self._waiting.extendleft(reversed(again))

    def _fail_waiting(self) -> None:
        """Fail the calls that only wait for the restart, unless they may be retried."""
        kept: deque[PendingCall] = deque()
        is_blocked = False
        for pending in self._waiting:
            is_ready = all(reference._state != PENDING for _, reference in pending.dependencies)
            is_blocked = is_blocked or not (is_ready or self.unordered)
            is_retried = bool(pending.retries_left or pending.call.attempt)
            if is_retried or is_blocked or not is_ready:
                kept.append(pending)
            else:
                self._fail(pending, self._unavailable(RESTARTS))
        self._waiting = kept

    def _unavailable(self, text: str) -> bytes:
        return dumps(exceptions.ActorUnavailableError(text, self.actor))

    def lost(self) -> None:
        """Handle a broken connection: the node will report the actor's state."""
        with self._lock:
            self._connection = None

    def arrived(self, message: Any) -> None:
        """Handle a message from the actor."""
        kind = type(message)
        if kind is m.Reply:
            self.replied(message)
        elif kind is m.CallItem:
            pending = self._sent.get(message.task)
            if pending is None:
                self._client.references.decline(message.task, [message.result], message.index)
            elif pending.stream is not None:
                pending.stream.item(message.index, message.result, limited=message.limited)
                if pending.stream.ending is not None:
                    self.replied(pending.stream.ending)

    def replied(self, reply: m.Reply) -> None:
        """Handle the reply to a call."""
        pending = self._sent.pop(reply.task, None)
        if pending is None:
            self._client.references.decline(reply.task, reply.results)
            return
        if reply.retry and pending.retries_left:
            with self._lock:
                if pending.retries_left > 0:
                    pending.retries_left -= 1
                pending.call.attempt += 1
                if self._connection is not None:
                    self._send(pending)
                else:
                    self._waiting.append(pending)
            return
        if pending.stream is not None:
            if pending.stream.lacks(reply.count):
                # Small items arrive directly and large ones via the node, so the reply may overtake items.
                pending.stream.ending = reply
                self._sent[reply.task] = pending
                return
            for result in reply.results:
                reply.count += 1
                pending.stream.item(reply.count, result)
            pending.stream.ended(reply.count)
            return
        client = self._client
        for reference, result in zip(pending.refs, reply.results, strict=False):
            if result.state == SHARED or result.contains:
                client.references.adopt(reference)
                client.references.settle(reference, result.state, result.data)
            else:
                client.references.settle(reference, result.state, result.data)
                # Its reference may have left this process before it was ready.
                if reference._known and not client.channel.closed:
                    client.channel.send(m.Register(reference._id, result.state, result.data))

    def _fail(self, pending: PendingCall, error: bytes) -> None:
        if pending.stream is not None:
            pending.stream.failed(error)
            return
        for reference in pending.refs:
            self._client.references.settle(reference, ERROR, error)
            if reference._known and not self._client.channel.closed:
                self._client.channel.send(m.Register(reference._id, ERROR, error))

    # ------------------------------------------------------------ cancelling

    def cancel(self, task: bytes, *, recursive: bool) -> None:
        """Cancel a call: remove an unsent one, notify the actor of a sent one."""
        with self._lock:
            for pending in self._waiting:
                if pending.call.task == task:
                    self._waiting.remove(pending)
                    cancelled = exceptions.TaskCancelledError(task.hex())
                    self._fail(pending, dumps(task_error(cancelled, pending.call.method)))
                    return
            if task in self._sent and self._connection is not None:
                self._sent[task].retries_left = 0
                self._cancelled.add(task)
                self._client.channel.hub.send(self._connection, m.CancelCall(task, recursive))

    def report(self, message: m.Consumed) -> None:
        """Report the progress of a generator's reader to the actor."""
        connection = self._connection
        if connection is not None:
            self._client.channel.hub.send(connection, message)


def _as_actor_error(data: bytes) -> bytes:
    """Return the error of a dead actor; the error of an argument becomes the cause of the death."""
    error = loads(data)
    if isinstance(error, exceptions.RayTaskError):
        return dumps(exceptions.ActorDiedError(error))
    return data


class LinkTable:
    """The links of a process, by actor."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._links: dict[bytes, ActorLink] = {}
        client.channel.handlers[m.ActorUpdate] = self._updated
        client.channel.handlers[m.Reply] = self._replied_by_node
        client.channel.handlers[m.CallItem] = self._item_by_node
        client.channel.on_peer_closed = self._lost
        client.waits.outstanding = self._outstanding

    def __getitem__(self, actor: bytes) -> ActorLink:
        link = self._links.get(actor)
        if link is None:
            link = self._links.setdefault(actor, ActorLink(self._client, actor, self))
        return link

    def _updated(self, update: m.ActorUpdate) -> None:
        self[update.actor].updated(update)

    def _replied_by_node(self, reply: m.Reply) -> None:
        self[reply.task[8:24]].replied(reply)

    def _item_by_node(self, message: m.CallItem) -> None:
        self[message.task[8:24]].arrived(message)

    def _lost(self, connection: Connection) -> None:
        if isinstance(connection.label, ActorLink):
            connection.label.lost()

    def _outstanding(self) -> OutstandingCalls:
        found = OutstandingCalls()
        for link in list(self._links.values()):
            link.list_calls(found)
        return found

    def wait_until_sent(self) -> None:
        """Wait until the end of this process would lose no call."""
        self._client.channel.hub.attend(
            lambda: not any(link.has_unsent_calls for link in list(self._links.values()))
        )

    def fail_all(self, error: bytes) -> None:
        """Fail all calls, because the session has ended."""
        for link in self._links.values():
            link.updated(m.ActorUpdate(link.actor, "DEAD", error=error))


critical(ActorLink._submit, ActorLink._pump_for, ActorLink.cancel)
