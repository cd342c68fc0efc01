"""Access to the node from a driver or a worker: getting, waiting for, putting and mapping values.

Each process has one `Client`, which has the request channel to the node and the references of the process.
"""

from __future__ import annotations

import errno
import os
import reprlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from skate._base import creation_sites, ids, object_ref
from skate._base import errors as exceptions
from skate._base.exports import explain
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED, CallbackOwner, ObjectRef
from skate._base.serialization import Serialized, loads, serialize
from skate._engine.common import failures, open_files
from skate._engine.common.outcomes import as_raised
from skate._engine.common.values import INLINE_LIMIT
from skate._engine.local.client.hold_reports import HoldReports
from skate._engine.local.client.mappings import Mappings
from skate._engine.local.client.references import References
from skate._engine.local.client.request_channel import RequestChannel
from skate._engine.local.client.task_context import current_task
from skate._engine.local.client.wait_reports import Waits
from skate._engine.local.session import segments
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import SegmentFiles, SegmentMapping, is_full
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection

if TYPE_CHECKING:
    from skate._engine.abc import WaitWatcher

WORKER_BLOCK_DELAY_S = 0.002  # a worker that blocks for longer lends its CPU to others
DRIVER_BLOCK_DELAY_S = 0.5  # a driver that blocks for longer reports it to the node
FORKED = "this process was forked from the one that has the session; call init() to start one here"

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client(CallbackOwner):
    """The membership of this process in a session."""

    def __init__(self, connection: Connection, welcome: m.Welcome, shm: str) -> None:
        reports = HoldReports()
        self.channel = RequestChannel(connection, reports)
        self.references = References(self, self.channel, reports)
        self.number = welcome.number
        self.job = welcome.job
        self.session = welcome.session
        self.node_id = welcome.node_id
        self.namespace = welcome.namespace
        self.labels = welcome.labels
        self.ids = ids.IdFactory(welcome.number, welcome.job, welcome.node_id)
        self.files = SegmentFiles(Session(welcome.session, shm))
        self.mappings = Mappings(self.channel, self.references, self.files)
        self.channel.before_flush = self.mappings.release_dropped
        self.channel.handlers[m.Tidy] = self._tidy
        self.channel.handlers[m.DropSegments] = lambda message: self.files.drop(message.segments)
        self.before_blocking: Callable[[list[ObjectRef[Any]], bool], Callable[[], None] | None] | None = None
        self.on_long_wait: WaitWatcher | None = None  # of a driver
        self.waits = Waits(self)
        self._exported: set[bytes] = set()
        self._templates: dict[Any, int] = {}
        self._definition_lock = threading.Lock()
        _clients.add(self)

    def record_creation_sites(self) -> None:
        """Record what creates references, tasks and actors from now on, if environment variables enable it."""
        creation_sites.record(self.references, self.ids, self.session)

    def _tidy(self, message: m.Tidy) -> None:
        """Release memory that this process does not need, because the node is short of it."""
        self.mappings.release_idle()
        self.channel.flush_reports()
        if message.collect:  # in a thread, because it takes time and may run user code
            threading.Thread(target=self._collect, name="skate-collect", daemon=True).start()

    def _collect(self) -> None:
        import gc

        gc.collect()
        self.channel.hub.wake()

    # ------------------------------------------------------------ what references call

    def reference_pickled(self, reference: ObjectRef[Any]) -> None:
        """Track a reference that Skate pickles; pin one that other code pickles."""
        self.references.pickled(reference)

    def reference_dropped(self, reference: ObjectRef[Any]) -> None:
        """Note that a reference is gone. The garbage collector calls this at any point."""
        self.references.dropped(reference)

    def promote(self, reference: ObjectRef[Any]) -> None:
        """Register an object with the node before its reference leaves this process."""
        self.references.promote(reference)

    def when_ready(self, reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Call `callback` once the reference is ready; immediately if it is."""
        self.references.when_ready(reference, callback)

    def call_in_loop(self, loop: Any, callback: Callable[[], None]) -> None:
        """Run `callback` in an event loop; directly if this is its thread."""
        if getattr(loop, "_thread_id", None) == threading.get_ident():
            callback()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(callback)

    # ------------------------------------------------------------ get and wait

    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""
        self.check(references, several=True)
        pending = [reference for reference in references if reference._state == PENDING]
        if pending:
            self.references.subscribe(pending)
            if not self._wait_for_all(pending, timeout, len(references) - len(pending)):
                self._raise_error_among(references)
                if self.channel.closed:
                    raise self.channel.closed_error()
                left = sum(r._state == PENDING for r in references)
                raise exceptions.GetTimeoutError(failures.get_timed_out(left, len(references), timeout))
        if len(references) == 1:
            return [self.value_of(references[0])]
        self._raise_error_among(references)
        shared = [r for r in references if r._state == SHARED]
        if len(shared) > 1:
            self.mappings.locate(shared)
        # Without a call of `value_of` for each small value: the last worker is idle until all of them are loaded.
        return [loads(r._data) if r._state == INLINE else self.value_of(r) for r in references]

    def check(self, references: Sequence[ObjectRef[Any]], *, several: bool = False) -> None:
        """Raise if a reference belongs to another session."""
        for reference in references:
            if reference._engine is not self:
                self._raise_foreign(reference, several=several)
        if self.channel.closed:
            raise self.channel.closed_error()

    def _raise_foreign(self, reference: ObjectRef[Any], *, several: bool = False) -> None:
        if reference._engine is None:
            reference._need_engine()
        raise ValueError(failures.foreign_reference(reference, several=several))

    def _wait_for_all(self, pending: list[ObjectRef[Any]], timeout: float | None, ready: int) -> bool:
        remaining = pending[::-1]
        errors = self.references.errors

        def all_there() -> bool:
            nonlocal errors
            while remaining and remaining[-1]._state:
                remaining.pop()
            if not remaining or self.channel.closed:
                return True
            if self.references.errors != errors:
                errors = self.references.errors
                return any(reference._state == ERROR for reference in pending)
            return False

        is_there = self.block(pending, all_there, timeout, ready=ready, timed=timeout is not None)
        return is_there and not self.channel.closed

    def block(
        self,
        references: list[ObjectRef[Any]],
        until: Callable[[], bool],
        timeout: float | None,
        *,
        need: int = 0,
        ready: int = 0,
        timed: bool = True,
    ) -> bool:
        """Handle messages until `until()` holds; meanwhile, the node may lend this worker's CPU to others.

        Args:
            references: The objects to wait for.
            until: Returns whether the wait is over.
            timeout: The longest wait in seconds.
            need: How many of the references must become ready; 0 for all of them, or an error.
            ready: How many other references, which the caller waits for as well, are ready.
            timed: Whether the wait ends even if they do not.

        Raises:
            DeadlockError: The wait would never end.
        """
        if until():
            return True
        if timeout is not None and timeout <= 0:
            self.channel.flush_reports()
            return self.channel.hub.attend(until, 0)
        # A short wait does not start another worker.
        soon = DRIVER_BLOCK_DELAY_S if self.before_blocking is None else WORKER_BLOCK_DELAY_S
        if timeout is not None and timeout <= soon:
            return self.channel.hub.attend(until, timeout)
        if self.channel.hub.attend(until, soon):
            return True
        resume = None
        if self.before_blocking is not None:
            resume = self.before_blocking(references, timed)
        end_watch = None
        if self.on_long_wait is not None:
            end_watch = self.on_long_wait(references, need or len(references), ready)
        wait = self.waits.begin(references, need, timed=timed)
        left = None if timeout is None else timeout - soon
        try:
            if resume is None and not timed:
                self.channel.send(m.Stalled())
            there = self.channel.hub.attend(lambda: until() or bool(wait.verdict), left)
        finally:
            self.waits.end(wait)
            if end_watch is not None:
                end_watch()
            if resume is not None:
                resume()
        if wait.verdict and not until():
            raise exceptions.DeadlockError(wait.verdict)
        return there

    def _raise_error_among(self, references: Sequence[ObjectRef[Any]]) -> None:
        for reference in references:
            if reference._state == ERROR:
                raise self.error_of(reference)

    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None
    ) -> tuple[list[Any], list[Any]]:
        """Split references into those that are ready, at most `num_returns`, and the rest."""
        ready = _first_ready(references, num_returns)
        for index in ready:
            if not self._is_own(references[index]):
                return self._wait_for_own(references, num_returns, timeout)
        if len(ready) < num_returns:
            seen = self.references.settled
            pending = [r for r in references if type(r) is ObjectRef and not r._state]
            streams = [r for r in references if type(r) is not ObjectRef]
            need = num_returns - (len(references) - len(pending) - len(streams))
            if not all(map(self._is_own, pending)):
                return self._wait_for_own(references, num_returns, timeout)
            self.check([])
            self.references.subscribe(pending)

            def enough() -> bool:
                nonlocal pending, need, seen
                if self.references.settled != seen:  # otherwise no reference has changed
                    seen = self.references.settled
                    before = len(pending)
                    pending = [r for r in pending if not r._state]
                    need -= before - len(pending)
                return need <= sum(r._stream.ready() for r in streams) or bool(self.channel.closed)

            timed = timeout is not None or bool(streams)
            self.block(pending, enough, timeout, need=need, ready=num_returns - need, timed=timed)
            if self.channel.closed:
                raise self.channel.closed_error()
            ready = _first_ready(references, num_returns)
        if len(ready) == 1:  # the common case: a loop that takes one at a time
            index = ready[0]
            return [references[index]], references[:index] + references[index + 1 :]
        chosen = set(ready)
        return (
            [references[index] for index in ready],
            [reference for index, reference in enumerate(references) if index not in chosen],
        )

    def _is_own(self, waitable: Any) -> bool:
        """Return whether a reference belongs to this session; generators always do."""
        return type(waitable) is not ObjectRef or waitable._engine is self

    def _wait_for_own(
        self, references: list[Any], num_returns: int, timeout: float | None
    ) -> tuple[list[Any], list[Any]]:
        """Wait for the references of this session; those of another session never become ready, as in Ray."""
        own = [r for r in references if self._is_own(r)]
        if not own:
            self.check(references)
        ready, _ = self.wait(own, min(num_returns, len(own)), timeout)
        chosen = set(map(id, ready))  # object ids are unique within a session only
        return ready, [r for r in references if id(r) not in chosen]

    def value_of(self, reference: ObjectRef[Any]) -> Any:
        """Return the value of a reference that is ready."""
        state = reference._state
        if state == INLINE:
            return loads(reference._data)
        if state == SHARED:
            return self._shared_value(reference)
        if state == ERROR:
            raise self.error_of(reference)
        return self.get([reference], None)[0]

    def error_of(self, reference: ObjectRef[Any]) -> BaseException:
        """Return the exception that replaces a value."""
        return as_raised(loads(reference._data))

    # ------------------------------------------------------------ shared memory

    def _shared_value(self, reference: ObjectRef[Any]) -> Any:
        mapping = self.map(reference)
        return loads(memoryview(mapping)[: mapping.size_used])

    def map(self, reference: ObjectRef[Any]) -> SegmentMapping:
        """Return the mapped memory of a shared object."""
        while True:  # another thread may have mapped and released an object that this thread located
            try:
                found = self.mappings.take(reference)
            except OSError as error:
                raise exceptions.RaySystemError(_why_unmapped(error)) from error
            if isinstance(found, SegmentMapping):
                return found
            if found is not None:
                raise as_raised(loads(found))
            self.mappings.locate([reference])

    def expect(self, id: bytes) -> ObjectRef[Any]:
        """Return a reference to a shared argument that the node holds for this process."""
        reference = self.references.find(id)
        if reference is None:
            reference = self.references.new_reference(id)
        if reference._state == PENDING:
            self.references.settle(reference, SHARED, None)
        return reference

    def write_shared(self, value: Serialized) -> tuple[str, int]:
        """Write a value to shared memory; return its segment and size."""
        size = max(1, value.size)
        answer = self.channel.exchange(lambda number: m.Allocate(number, size))
        try:
            self.files.write(answer.segment, answer.size, value, reused=answer.reused)
        except OSError as error:
            if segments.is_on_disk(answer.segment) or not is_full(error):
                raise self._write_failed(answer, value.size, error) from error
            answer = self._write_to_disk(answer.segment, value)
        return answer.segment, value.size

    def _write_to_disk(self, segment: str, value: Serialized) -> m.Allocated:
        """Write a value to disk, because other programs have filled shared memory."""
        answer: m.Allocated = self.channel.exchange(
            lambda number: m.Allocate(number, value.size, instead_of=segment)
        )
        try:
            self.files.write(answer.segment, answer.size, value, reused=False)
        except OSError as error:
            raise self._write_failed(answer, value.size, error) from error
        return answer

    def _write_failed(self, answer: m.Allocated, size: int, error: OSError) -> Exception:
        """Return an allocated segment to the node, and the exception that explains the failed write."""
        self.channel.send(m.Abandon(answer.segment))
        if open_files.is_exhausted(error):
            return exceptions.RaySystemError(open_files.describe_limit(error))
        if segments.is_on_disk(answer.segment):
            return exceptions.OutOfDiskError(failures.disk_full(answer.reason, error))
        return exceptions.ObjectStoreFullError(failures.no_memory(size, error))

    # ------------------------------------------------------------ put and results

    def put(self, value: Any) -> ObjectRef[Any]:
        """Store a value and return a reference to it."""
        if self.channel.closed:
            raise self.channel.closed_error()
        try:
            payload = serialize(value)
        except RecursionError:
            raise
        except Exception as error:
            raise TypeError(explain(value, f"the put value {reprlib.repr(value)}", error)) from error
        id = ids.object_id(self.ids.task(), 1)
        if payload.size <= INLINE_LIMIT and not payload.references:
            reference = self.references.own_reference(id)
            reference._data = payload.to_bytes()
            reference._state = INLINE
            return reference
        return self.put_serialized(id, payload)

    def put_serialized(self, id: bytes, payload: Serialized) -> ObjectRef[Any]:
        """Store a serialized value with the node."""
        result = self.result_of(payload)
        reference = self._find_or_make_reference(id)
        self.references.settle(reference, result.state, result.data)
        self.channel.send(
            m.Register(id, result.state, result.data, result.segment, result.size, result.contains)
        )
        return reference

    def put_error(self, id: bytes, error: bytes) -> ObjectRef[Any]:
        """Store a serialized exception in place of a value."""
        reference = self._find_or_make_reference(id)
        self.references.settle(reference, ERROR, error)
        self.channel.send(m.Register(id, ERROR, error))
        return reference

    def _find_or_make_reference(self, id: bytes) -> ObjectRef[Any]:
        """Return the reference to an object that this process makes, possibly in a second attempt of a task."""
        reference = self.references.find(id)
        if reference is None:
            reference = self.references.renew(id)
        return reference

    def result_of(self, payload: Serialized) -> m.Result:
        """Return a serialized value as a part of a message, with large values in shared memory."""
        contains = self.register_contained(payload)
        if payload.size <= INLINE_LIMIT:
            return m.Result(INLINE, payload.to_bytes(), contains=contains)
        segment, size = self.write_shared(payload)
        return m.Result(SHARED, segment=segment, size=size, contains=contains)

    def register_contained(self, payload: Serialized) -> list[bytes]:
        """Register the references inside a payload with the node, and return their ids."""
        if not payload.references:
            return []
        found = dict.fromkeys(reference._id for reference in payload.references)
        for reference in payload.references:
            if not reference._known:
                self.promote(reference)
        running = current_task.get()
        if running is not None:
            running.keep += payload.references
        return list(found)

    # ------------------------------------------------------------ functions and templates

    def export(self, key: bytes, code: Callable[[], bytes]) -> None:
        """Send a function or class to the node, once."""
        if key not in self._exported:
            self.channel.send(m.Export(key, code()))
            self._exported.add(key)

    def template(self, key: Any, make: Callable[[], m.TaskTemplate]) -> int:
        """Return the number of a template; define it at its first use."""
        number = self._templates.get(key)
        if number is None:
            with self._definition_lock:
                number = self._templates.get(key)
                if number is None:
                    number = len(self._templates) + 1
                    self.channel.send(m.Define(number, make()))
                    self._templates[key] = number
        return number

    # ------------------------------------------------------------ closing

    def close(self, reason: str) -> None:
        """End this process' membership in the session."""
        self.channel.closed = self.channel.closed or reason
        self.channel.hub.close()
        self.files.close()

    def abandon(self) -> None:
        """Leave the session in a forked child, without any message on behalf of the parent."""
        self._definition_lock = threading.Lock()  # a thread of the parent may hold the old one
        self.channel.abandon(FORKED)


def _why_unmapped(error: OSError) -> str:
    if open_files.is_exhausted(error):
        return open_files.describe_limit(error)
    if error.errno == errno.ENOMEM:
        return (
            "A shared object cannot be mapped: this process has no address space left, or too many mappings. Drop "
            "references to arrays you no longer need, or raise the sysctl vm.max_map_count."
        )
    return f"A shared object cannot be mapped: {error}"


def _first_ready(references: list[Any], count: int) -> list[int]:
    """Return the positions of the first `count` references that are ready."""
    found = []
    for index, reference in enumerate(references):
        if reference._state if type(reference) is ObjectRef else reference._stream.ready():
            found.append(index)
            if len(found) == count:
                break
    return found


def install(client: Client) -> None:
    """Make unpickled references belong to `client`."""
    object_ref.reviver = client.references.revive
    object_ref.reviver_of_many = client.references.revive_many


def uninstall() -> None:
    """Make unpickled references belong to no session."""
    object_ref.reviver = None
    object_ref.reviver_of_many = None


def _after_fork() -> None:
    for client in list(_clients):
        client.abandon()


os.register_at_fork(after_in_child=_after_fork)
