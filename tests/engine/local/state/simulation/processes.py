"""A fake process: keeps the promises that a real one makes to the node about its references.

A reference is counted here as Python would count it. The first one to an object that came from
elsewhere is told with Hold, the end of the last one with Release; an object that only this process
knows is told with Register before a reference to it leaves. Shared memory is mapped between Located
and Unpin, and its object is referred to all that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.ids import CREATION, handle_id
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED
from skate._engine.local.session.segments import is_on_disk
from skate._engine.local.wire import messages as m
from tests.engine.local.state.simulation.failure import Violation
from tests.engine.local.state.simulation.links import LinkTable

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.simulation import Simulation

PAGE = 4096


class Reference:
    """The state of a process about an object that it refers to."""

    __slots__ = ("count", "data", "known", "state", "subscribed")

    def __init__(self, *, known: bool, subscribed: bool, state: int = PENDING, data: bytes = b"") -> None:
        self.count = 1
        self.known = known  # whether the node counts (or will count) this process as a holder
        self.subscribed = subscribed
        self.state = state
        self.data = data


class Frame:
    """The variables of a running function, of a driver's module, or of an actor's instance."""

    def __init__(self, task: bytes = b"") -> None:
        self.task = task
        self.variables: list[bytes] = []  # objects and actors' handles
        self.mappings: list[bytes] = []
        self.streams: list[Stream] = []
        self.children: list[bytes] = []
        self.borrowed = False

    def objects(self) -> list[bytes]:
        """Return the variables that are not handles of actors."""
        return [id for id in self.variables if not id.startswith(CREATION)]

    def actors(self) -> list[bytes]:
        """Return the actors that there are handles of."""
        return [id[8:24] for id in self.variables if id.startswith(CREATION)]


class Stream:
    """The reader's end of a generator."""

    def __init__(
        self, process: Process, task: bytes, *, limited: bool, report: Callable[[Any], None]
    ) -> None:
        self.process = process
        self.task = task
        self.limited = limited
        self.report = report
        self.items: dict[int, bytes] = {}
        self.taken = 0
        self.total: int | None = None
        self.closed = False
        self._failed_at = 0
        process.streams[task] = self

    def add(self, index: int, state: int, data: bytes, *, known: bool) -> None:
        """Take an item that has arrived."""
        id = ids.object_id(self.task, index)
        if index in self.items or index <= self.taken:  # of an earlier attempt
            if known:
                self.process.unwanted(id)
            return
        if state == ERROR:
            self._failed_at = index
        self.process.add(id, known=known, state=state, data=data)
        if self.closed:
            self.taken = max(self.taken, index)
            self.process.let_go(id)
        else:
            self.items[index] = id

    def complete(self) -> bool:
        """Return whether all items have arrived."""
        if self.total is None:
            return False
        return all(index in self.items for index in range(self.taken + 1, self.total + 1))

    def end(self, total: int) -> None:
        """Learn how many items there are."""
        self.total = total
        self.process.streams.pop(self.task, None)
        world = self.process.world
        if self.task in world.failed_streams and not self.closed and self._failed_at != total:
            raise Violation(f"the reader of {world.name(self.task)} is not told that it failed")

    def fail(self, data: bytes) -> None:
        """Take an error in place of the first item that is missing."""
        if self.total is None:
            index = self.taken + 1
            while index in self.items:
                index += 1
            for later in [other for other in self.items if other > index]:
                self.process.let_go(self.items.pop(later))
            self.add(index, ERROR, data, known=False)
            self.end(index)

    def take(self, frame: Frame) -> bool:
        """Move the next item to a variable, if it is there."""
        id = self.items.pop(self.taken + 1, None)
        if id is None:
            return False
        self.taken += 1
        frame.variables.append(id)
        if self.limited and self.total is None:
            self.report(m.Consumed(self.task, self.taken))
        return True

    def close(self) -> None:
        """Drop what was not taken."""
        self.closed = True
        for id in self.items.values():
            self.process.let_go(id)
        self.items.clear()
        if self.total is None:
            self.report(m.Consumed(self.task, self.taken, closed=True))


class Process:
    """A driver or a worker."""

    def __init__(self, world: Simulation, number: int, job: bytes) -> None:
        self.world = world
        self.number = number
        self.job = job
        self.alive = True
        self.ids = ids.IdFactory(number, job)
        self.inbox: deque[Any] = deque()
        self.outbox: deque[tuple[int, Any, Iterable[bytes]]] = deque()
        self.unsent = 0  # messages posted since the last that surely left the process
        self.unsettled: dict[bytes, int] = {}  # object -> messages about our holding it, on the way
        self.unsure: set[bytes] = set()  # objects that we will hold once they are pinned for us
        self.refs: dict[bytes, Reference] = {}
        self.locations: dict[bytes, str] = {}  # pinned for us, not mapped
        self.idle: dict[bytes, str] = {}  # pinned for us, not mapped any more, perhaps wanted again
        self.mapped: dict[bytes, list[Any]] = {}  # object -> [segment, users, references in it]
        self.failed_pins: dict[bytes, bytes] = {}
        self.pins_asked: set[bytes] = set()
        self.streams: dict[bytes, Stream] = {}
        self.expected: set[bytes] = set()  # tasks whose results are private to this process
        self.frame = Frame()  # module variables, or the actor's instance
        self.defined: dict[int, int] = {}  # index in the catalogue -> template number
        self.handlers: dict[type, Callable[[Any], None]] = {
            m.Ready: self._ready,
            m.Values: self._values_arrived,
            m.PrivateResult: self._private_result,
            m.Located: self._located,
            m.Allocated: self._answered,
            m.Answer: self._answered,
            m.DropSegments: lambda _: None,
            m.Tidy: lambda _: self.let_go_of_idle(),
            m.Inquire: self._inquired,
            m.SendObjects: self._send_objects,
            m.Output: lambda _: None,
        }
        self.links = LinkTable(self)
        # Waits here end at random, so that nobody is ever stuck.
        self.handlers[m.WaitProbe] = lambda probe: self.post(m.WaitReport(probe.round, active=True))
        self.handlers[m.ActorUpdate] = lambda update: self.links[update.actor].updated(update)
        self.handlers[m.Reply] = lambda reply: self.links[reply.task[8:24]].arrived(reply)
        self.handlers[m.CallItem] = lambda item: self.links[item.task[8:24]].arrived(item)
        self._requests: dict[int, Callable[[Any], None]] = {}
        self._next_request = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.number}"

    # ------------------------------------------------------------ messages

    def post(self, message: Any, about: Iterable[bytes] = ()) -> None:
        """Send a message to the node; `about` are the objects that it makes us a holder of, or not."""
        for id in about:
            self.unsettled[id] = self.unsettled.get(id, 0) + 1
        self.outbox.append((self.number, message, about))
        self.unsent += 1

    def told(self, about: Iterable[bytes]) -> None:
        """The node has handled a message."""
        for id in about:
            self.unsettled[id] -= 1
            if not self.unsettled[id]:
                del self.unsettled[id]

    def exchange(
        self, make: Callable[[int], Any], then: Callable[[Any], None], about: Iterable[bytes] = ()
    ) -> None:
        """Send a message with a request number, and call `then` with the answer."""
        self._next_request += 1
        self._requests[self._next_request] = then
        self.post(make(self._next_request), about)

    def waits_for_answer(self) -> bool:
        """Return whether the process has asked the node something."""
        return bool(self._requests)

    def can_act(self) -> bool:
        """Return whether there is something to do."""
        return not self._requests

    def receive(self) -> None:
        """Handle the next message from the node."""
        message = self.inbox.popleft()
        self.handlers[type(message)](message)

    def _answered(self, message: Any) -> None:
        self._requests.pop(message.request)(message)

    # ------------------------------------------------------------ references

    def add(
        self, id: bytes, *, known: bool, subscribed: bool = True, state: int = PENDING, data: bytes = b""
    ) -> Reference:
        """Have a first reference."""
        assert id not in self.refs, f"{self} has a reference to {self.world.name(id)} already"
        reference = self.refs[id] = Reference(known=known, subscribed=subscribed, state=state, data=data)
        if state == ERROR:
            self.world.witness(self, id, data)
        return reference

    def revive(self, id: bytes, frame: Frame) -> None:
        """Take over a reference that came inside a value."""
        if id in self.refs:
            self.refs[id].count += 1
        else:
            self.add(id, known=True, subscribed=False)
            self.post(m.Hold([id]), [id])
            frame.borrowed = True
        frame.variables.append(id)

    def keep(self, id: bytes) -> None:
        """Refer to an object once more."""
        self.refs[id].count += 1

    def let_go(self, id: bytes) -> None:
        """Refer to an object once less."""
        reference = self.refs[id]
        reference.count -= 1
        if not reference.count:
            del self.refs[id]
            self.unsure.discard(id)
            if reference.known:
                self.post(m.Release([id]), [id])

    def unwanted(self, id: bytes) -> None:
        """The node has made us a holder of something that we have no use for."""
        if id in self.refs:
            self.refs[id].known = True
        else:
            self.post(m.Release([id]), [id])

    def drop(self, frame: Frame, id: bytes) -> None:
        """Let go of a variable."""
        frame.variables.remove(id)
        self.let_go(id)

    def promote(self, id: bytes) -> None:
        """Make an object of our own known to the node."""
        reference = self.refs[id]
        if not reference.known:
            reference.known = True
            self._register(id, reference)

    def _register(self, id: bytes, reference: Reference) -> None:
        state = reference.state if reference.state in (INLINE, ERROR) else PENDING
        follows = not state and ids.task_of(id) in self.expected
        self.post(m.Register(id, state, reference.data if state else b"", follows=follows), [id])

    def subscribe(self, id: bytes) -> None:
        """Ask to be told when an object is ready, unless we will be."""
        reference = self.refs[id]
        if reference.state == PENDING and not reference.subscribed:
            reference.subscribed = True
            self.post(m.Subscribe([id]))

    def settle(self, id: bytes, state: int, data: bytes) -> None:
        """Learn the value of an object."""
        reference = self.refs[id]
        if reference.state != PENDING:
            return
        reference.state = state
        reference.data = data
        if state == ERROR:
            self.world.witness(self, id, data)

    def end_frame(self, frame: Frame) -> None:
        """Drop everything that a function had."""
        for id in frame.mappings:
            self.unmap(id)
        frame.mappings = []
        for stream in frame.streams:
            if not stream.closed:
                stream.close()
        frame.streams = []
        variables, frame.variables = frame.variables, []
        for id in variables:
            self.let_go(id)

    def _ready(self, message: m.Ready) -> None:
        id = message.id
        stream = self.streams.get(ids.task_of(id))
        if ids.index_of(id) == 0:
            if stream is not None:
                stream.end(message.total)
        elif id in self.refs:
            self.settle(id, message.state, message.data)
        elif stream is not None:
            index = ids.index_of(id)
            if index in stream.items or (index <= stream.taken and not stream.closed):
                raise Violation(f"{self} is told of item {self.world.name(id)} twice")
            stream.add(index, message.state, message.data, known=True)
        else:
            # Nobody here wants it any more, but the node may count us as a holder.
            self.post(m.Release([id]), [id])

    def _send_objects(self, message: m.SendObjects) -> None:
        rows = [(id, each.state, len(each.data)) for id, each in self.refs.items() if not each.known]
        self.post(m.PrivateObjects(message.request, rows))

    def expect_result(self, task: bytes) -> bytes:
        """Have a reference to the private result of a task, and another one until the result arrives."""
        id = ids.object_id(task, 1)
        self.add(id, known=False)
        self.keep(id)
        self.expected.add(task)
        return id

    def _values_arrived(self, message: m.Values) -> None:
        for task, data in zip(message.tasks, message.values, strict=True):
            self._take_private(m.PrivateResult(task, m.Result(INLINE, data)))

    def _private_result(self, message: m.PrivateResult) -> None:
        self._take_private(message)

    def _take_private(self, message: m.PrivateResult) -> None:
        id, result = ids.object_id(message.task, 1), message.result
        if message.task not in self.expected:
            raise Violation(f"{self} is given the result of {self.world.name(message.task)} twice")
        self.expected.remove(message.task)
        if result.state == SHARED or result.contains:
            self.refs[id].known = True
        self.settle(id, result.state, result.data)
        if self.refs[id].known and not message.registered:
            self._register(id, self.refs[id])
        self.let_go(id)

    def _inquired(self, message: m.Inquire) -> None:
        reference = self.refs.get(message.id)
        if reference is None:
            self.post(message)
        else:
            reference.known = True
            self._register(message.id, reference)

    # ------------------------------------------------------------ shared memory

    def map(self, id: bytes) -> bool | None:
        """Map a shared object: True once it is, None if it cannot be, False while it has to be waited for."""
        if id in self.mapped:
            self.mapped[id][1] += 1
            return True
        if id in self.failed_pins:
            del self.failed_pins[id]
            return None
        segment = self.locations.pop(id, None) or self.idle.pop(id, None)
        if segment is not None:
            self.mapped[id] = [segment, 1, self.world.memory.map(self, id, segment)]
            self.keep(id)
            return True
        if id not in self.pins_asked:
            self.pins_asked.add(id)
            self.keep(id)  # who asks refers to it until the answer comes
            self.post(m.Pin([id]))
        return False

    def unmap(self, id: bytes) -> None:
        """Unmap a shared object once."""
        mapping = self.mapped[id]
        mapping[1] -= 1
        if not mapping[1]:
            del self.mapped[id]
            self.world.memory.unmap(self, mapping[0])
            if id in self.locations or not self.world.choices.chance(40):
                self.post(m.Unpin([id]))
            else:
                self.idle[id] = mapping[0]
            self.let_go(id)

    def expect(self, id: bytes) -> None:
        """Have a reference to a shared argument: the node makes us a holder when it pins it for us."""
        if id in self.refs:
            self.keep(id)
        else:
            self.add(id, known=True)
            if id not in self.locations and id not in self.idle:
                self.unsure.add(id)
        self.refs[id].state = SHARED

    def tidy(self) -> None:
        """Let go of what was pinned for tasks that were not run, and of what is not mapped any more."""
        self.failed_pins.clear()
        self._unpin_all(self.locations)
        self.let_go_of_idle()

    def let_go_of_idle(self) -> None:
        """Let go of what is not mapped any more."""
        self._unpin_all(self.idle)

    def _unpin_all(self, pinned: dict[bytes, str]) -> None:
        for id in list(pinned):
            del pinned[id]
            self.post(m.Unpin([id]))
            if id not in self.refs:
                self.post(m.Release([id]), [id])

    def _located(self, message: m.Located) -> None:
        id = message.id
        asked = id in self.pins_asked
        self.pins_asked.discard(id)
        if message.error:
            if id in self.refs:
                self.world.witness(self, id, message.error)
            self.failed_pins[id] = message.error
        else:
            self.unsure.discard(id)
            if self.idle.pop(id, None) is not None:
                self.post(m.Unpin([id]))
            if id in self.locations or id in self.mapped:
                self.post(m.Unpin([id]))  # pinned twice: once is enough
            else:
                self.locations[id] = message.segment
        if asked:
            self.let_go(id)

    def write(
        self, id: bytes, size: int, contains: list[bytes], then: Callable[[m.Result | None], None]
    ) -> None:
        """Write a value to shared memory, and call `then` with it; with None if there is no room."""

        def granted(answer: m.Allocated) -> None:
            self.world.memory.granted(self, answer, size)
            if not answer.reused and self.world.choices.chance(3):  # the file system is full
                if is_on_disk(answer.segment):
                    self.post(m.Abandon(answer.segment))
                    then(None)
                else:
                    self.exchange(
                        lambda request: m.Allocate(request, size, instead_of=answer.segment), granted
                    )
                return
            self.world.memory.write(answer.segment, id, contains)
            then(m.Result(SHARED, segment=answer.segment, size=size, contains=contains))

        self.exchange(lambda request: m.Allocate(request, size), granted)

    # ------------------------------------------------------------ for actions

    def template(self, index: int) -> int:
        """Return the number of a template of the catalogue, telling the node of it at first use."""
        number = self.defined.get(index)
        if number is None:
            number = self.defined[index] = len(self.defined) + 1
            self.post(m.Define(number, self.world.catalogue[index]))
        return number


class Driver(Process):
    """A program that uses the node."""


def handle(actor: bytes) -> bytes:
    """Return the object that stands for the handles of an actor."""
    return handle_id(actor)
