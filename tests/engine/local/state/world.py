"""A node's state machine among fake processes that do what a test says, at once.

`World` holds the machine and what it has told the host to do; `Process` and `Worker` say things to the
machine and remember what they were told.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

from skate._base import ids
from skate._base.ids import handle_id
from skate._base.object_ref import ERROR, INLINE, SHARED
from skate._engine.local.state.machine import Machine
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import unpack

PAGE = 4096
T = TypeVar("T")

Slots = list[tuple[int | str, bytes]]


class World:
    """A machine, the processes around it, and the commands that wait for the host."""

    def __init__(
        self,
        *,
        cpus: float = 2,
        gpus: int = 0,
        resources: dict[str, float] | None = None,
        pages: int = 1000,
        labels: dict[str, str] | None = None,
        private: bool = False,
        learns_imports: bool = True,
    ) -> None:
        self.machine = Machine(
            resources={"CPU": float(cpus), "GPU": float(gpus), **(resources or {})},
            devices={"GPU": [str(index) for index in range(gpus)]},
            labels=labels or {},
            node_id=b"n" * 28,
            budget=pages * PAGE,
            private=private,
            learns_imports=learns_imports,
        )
        self.now = 100.0
        self.commands: list[Any] = []
        self.processes: dict[int, Process] = {}

    # ------------------------------------------------------------ talking to the machine

    def tell(self, source: int, message: Any) -> None:
        """Say something to the machine, and hand out what it says."""
        self.route(self.machine.step(source, message, self.now))

    def route(self, outgoing: list[tuple[int, Any]]) -> None:
        """Hand out what the machine has said."""
        for receiver, message in outgoing:
            if receiver:
                assert receiver in self.machine.peers, f"{receiver} is gone and cannot hear {message}"
                self.processes[receiver].hear(message)
            else:
                self.commands.append(message)

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on, and the machine look at it."""
        self.now += seconds
        self.machine.tick(self.now)
        self.machine.settle()
        self.route(self.machine.take())

    def commanded(self, kind: type[T]) -> list[T]:
        """Return the commands of a kind that the host has not carried out, and count them as done."""
        found = [command for command in self.commands if isinstance(command, kind)]
        self.commands = [command for command in self.commands if not isinstance(command, kind)]
        return found

    # ------------------------------------------------------------ processes

    def driver(self, **info: Any) -> Process:
        """Let a driver join."""
        peer = self.machine.connect_driver({"namespace": "", **info}, 1, self.now)
        return Process(self, peer.number, peer.job)

    def start_workers(self) -> list[Worker]:
        """Start the workers that the machine wants, until it wants no more."""
        started = []
        while wanted := self.commanded(m.StartWorker):
            for command in wanted:
                worker = Worker(self, command.number, command.job)
                self.tell(
                    worker.number, m.Hello("worker", 1000 + worker.number, worker.number, f"w{worker.number}")
                )
                started.append(worker)
        return started

    def start_worker(self) -> Worker:
        """Start the one worker that the machine wants."""
        (worker,) = self.start_workers()
        return worker

    def start_worker_for(self, driver: Process) -> Worker:
        """Start a worker for a driver, and leave it idle."""
        task = driver.submit()
        worker = self.start_worker()
        worker.finish(task)
        driver.release(result(task))
        return worker

    def fail_to_start(self, code: int = 1) -> None:
        """Let every worker that is being started die."""
        for command in self.commanded(m.StartWorker):
            self.tell(0, m.WorkerGone(command.number, code, ["No module named 'x'"]))

    def killed(self) -> list[int]:
        """Return the workers that the machine wants dead."""
        return [command.number for command in self.commanded(m.KillProcess)]

    # ------------------------------------------------------------ looking

    def available(self, name: str = "CPU") -> float:
        """Return how much of a resource nobody uses."""
        return self.machine.scheduler.pool.available[name] / 10_000

    def knows(self, id: bytes) -> bool:
        """Return whether the machine still has an object."""
        return id in self.machine.directory.objects

    @property
    def unfinished(self) -> list[bytes]:
        """The tasks that are not over."""
        return list(self.machine.tasks.table)


class Process:
    """A driver, or what all processes can do."""

    def __init__(self, world: World, number: int, job: bytes) -> None:
        self.world = world
        self.number = number
        self.job = job
        self.ids = ids.IdFactory(number, job)
        self.heard: list[Any] = []
        self._templates = 0
        self._requests = 0
        self._waits = 0
        self.waits: dict[
            bytes, tuple[int, int, list[bytes], bool]
        ] = {}  # task -> number, need, objects, timed
        self.awaited: list[bytes] = []
        self.sent: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.unsent: list[tuple[bytes, list[bytes], list[bytes]]] = []
        self.calls: list[bytes] = []  # of an actor: that it has received
        self.takes_calls = False
        self.answers_probes = True
        self.private: (
            list[tuple[bytes, int, int]] | None
        ) = []  # objects that only this process knows; None: too busy
        world.processes[number] = self

    def say(self, message: Any) -> None:
        """Send a message to the machine."""
        self.world.tell(self.number, message)

    def hear(self, message: Any) -> None:
        """Take a message from the machine."""
        self.heard.append(message)
        if isinstance(message, m.WaitProbe) and self.answers_probes:
            self.say(self.report(message.round))
        elif isinstance(message, m.SendObjects) and self.private is not None:
            self.say(m.PrivateObjects(message.request, self.private))

    def told(self, kind: type[T]) -> list[T]:
        """Return the messages of a kind that have arrived since the last look."""
        found = [message for message in self.heard if isinstance(message, kind)]
        self.heard = [message for message in self.heard if not isinstance(message, kind)]
        return found

    # ------------------------------------------------------------ waiting

    def report(self, round: int) -> m.WaitReport:
        """Return what this process waits for, as a real one would report it."""
        timed = any(timed for _, _, _, timed in self.waits.values())
        if timed or self.runs_code():
            return m.WaitReport(round, active=True)
        waits = [(number, task, need, objects) for task, (number, need, objects, _) in self.waits.items()]
        return m.WaitReport(
            round,
            waits=waits,
            turn=self._waits,
            awaited=self.awaited,
            calls=self.calls,
            takes_calls=self.takes_calls,
            sent=self.sent,
            cancelled=self.cancelled,
            unsent=self.unsent,
        )

    def runs_code(self) -> bool:
        """Return whether the process does something besides waiting."""
        return not self.waits

    def wait_for(self, *objects: bytes, task: bytes = b"", need: int = 1, timed: bool = False) -> None:
        """Begin to wait for objects."""
        self._waits += 1
        self.waits[task] = (self._waits, need, list(objects), timed)

    def call(self, actor: bytes, callee: Worker) -> bytes:
        """Call a method of an actor that has received the call; return the call."""
        call = self.ids.call(actor)
        self.sent.append(call)
        callee.calls.append(call)
        return call

    def stall(self, *objects: bytes, **how: Any) -> None:
        """Wait for objects as a driver does, which reports the wait after a while."""
        self.wait_for(*objects, **how)
        self.say(m.Stalled())

    def leave(self, code: int | None = -9) -> None:
        """End this process."""
        self.world.tell(0, m.WorkerGone(self.number, code, ["last words"]))

    # ------------------------------------------------------------ tasks

    def define(self, **spec: Any) -> int:
        """Make a template known; one CPU unless told otherwise."""
        self._templates += 1
        name = spec.setdefault("name", "f")
        spec.setdefault("resources", {"CPU": 1.0})
        self.say(m.Define(self._templates, m.TaskTemplate(name.encode(), **spec)))
        return self._templates

    def submit(
        self,
        template: int | None = None,
        *,
        needs: Sequence[bytes] = (),
        inside: Sequence[bytes] = (),
        args_object: bytes = b"",
        parent: bytes = b"",
        **spec: Any,
    ) -> bytes:
        """Submit a task and return its id; `needs` are objects it takes the values of."""
        number = self.define(**spec) if template is None else template
        task = self.ids.task()
        self.say(m.Submit(task, number, b"args", slots(needs), list(inside), args_object, parent))
        return task

    def submit_many(self, template: int, count: int, parent: bytes = b"") -> list[bytes]:
        """Submit tasks without references, whose results are private; return their ids."""
        tasks = [self.ids.task() for _ in range(count)]
        self.say(m.SubmitMany(template, tasks, [b"args"] * count, parent))
        return tasks

    def private_values(self) -> dict[bytes, bytes]:
        """Return the small private values that have arrived since the last look, by task."""
        return {
            task: value
            for message in self.told(m.Values)
            for task, value in zip(message.tasks, message.values, strict=True)
        }

    # ------------------------------------------------------------ objects

    def put(self, data: bytes = b"value", inside: Sequence[bytes] = ()) -> bytes:
        """Make a small object known."""
        id = result(self.ids.task())
        self.say(m.Register(id, INLINE, data, contains=list(inside)))
        return id

    def allocate(self, pages: float) -> m.Allocated | None:
        """Ask for shared memory; return the answer, or None if there is none yet."""
        self._requests += 1
        request = self._requests
        self.say(m.Allocate(request, int(pages * PAGE)))
        return self.answer(request)

    def answer(self, request: int) -> m.Allocated | None:
        """Return the answer to a request for shared memory, if it has come."""
        return next((a for a in self.heard if isinstance(a, m.Allocated) and a.request == request), None)

    def put_shared(self, pages: float = 1, inside: Sequence[bytes] = ()) -> bytes:
        """Write a large object to shared memory."""
        granted = self.allocate(pages)
        assert granted is not None, "there is no room"
        id = result(self.ids.task())
        size = int(pages * PAGE)
        self.say(m.Register(id, SHARED, segment=granted.segment, size=size, contains=list(inside)))
        return id

    def hold(self, *held: bytes) -> None:
        """Have first references."""
        self.say(m.Hold(list(held)))

    def release(self, *dropped: bytes) -> None:
        """Drop last references."""
        self.say(m.Release(list(dropped)))

    def value_of(self, id: bytes) -> bytes | None:
        """Return the bytes that an object was said to have, None if it was not said to be ready."""
        for message in self.heard:
            if isinstance(message, m.Ready) and message.id == id:
                return message.data
        return None

    def error_of(self, id: bytes) -> Exception:
        """Return the exception that an object was said to have."""
        data = self.value_of(id)
        assert data is not None, "the object is not ready"
        return load_error(data)

    def pin(self, id: bytes) -> m.Located | None:
        """Map a shared object; return where it is, or None if it is not there yet."""
        self.say(m.Pin([id]))
        return self.location_of(id)

    def location_of(self, id: bytes) -> m.Located | None:
        """Return the latest place that a shared object was said to be in."""
        return next((x for x in reversed(self.heard) if isinstance(x, m.Located) and x.id == id), None)

    # ------------------------------------------------------------ actors, groups, questions

    def create(self, template: int | None = None, *, needs: Sequence[bytes] = (), **options: Any) -> bytes:
        """Create an actor and return its id; options of its template go by `spec`."""
        spec = {"name": "Actor", "resources": {}, **options.pop("spec", {})}
        number = self.define(**spec) if template is None else template
        actor = self.ids.actor()
        self._requests += 1
        self.say(
            m.CreateActor(
                actor, number, b"args", m.ActorOptions(**options), slots(needs), request=self._requests
            )
        )
        return actor

    def state_of(self, actor: bytes) -> str:
        """Return the latest state that this process was told of an actor."""
        updates = [x for x in self.heard if isinstance(x, m.ActorUpdate) and x.actor == actor]
        return updates[-1].state if updates else ""

    def reserve(self, *bundles: dict[str, float], strategy: str = "PACK", **more: Any) -> bytes:
        """Ask for a placement group and return its id."""
        group = self.ids.group()
        self._requests += 1
        self.say(m.CreateGroup(self._requests, group, list(bundles), strategy, **more))
        return group

    def ask(self, question: m.Question, subject: bytes = b"", text: str = "") -> Any:
        """Ask the node something; raise the exception that it answers with."""
        self._requests += 1
        self.say(m.Ask(self._requests, question, subject, text))
        return self.answered()

    def answered(self) -> Any:
        """Return the answer to the latest request; raise the exception that it is."""
        (answer,) = (x for x in self.told(m.Answer) if x.request == self._requests)
        if answer.error:
            raise load_error(answer.error)
        return unpack(answer.data)


class Worker(Process):
    """A worker: remembers the tasks that it was given."""

    def __init__(self, world: World, number: int, job: bytes) -> None:
        super().__init__(world, number, job)
        self.runs: list[m.Run] = []
        self.actor: m.Become | None = None

    def hear(self, message: Any) -> None:
        """Take a message from the machine."""
        super().hear(message)
        if isinstance(message, m.Run):
            self.runs.append(message)
        elif isinstance(message, m.RunMany):
            for task, args in zip(message.tasks, message.args, strict=True):
                self.runs.append(m.Run(task, message.template, args, depth=message.depth))
        elif isinstance(message, m.Become):
            self.actor = message
            self.runs.append(message.run)

    @property
    def tasks(self) -> list[bytes]:
        """The tasks that it was given and has not finished."""
        return [run.task for run in self.runs]

    def _take(self, task: bytes) -> None:
        self.runs = [run for run in self.runs if run.task != task]

    def finish(self, task: bytes, *values: bytes, seconds: float = 1.0, **more: Any) -> None:
        """Return from a task with small values."""
        self._take(task)
        results = [m.Result(INLINE, value) for value in values or (b"value",)]
        self.say(m.Done(task, results, self.world.now, seconds, **more))

    def finish_many(self, tasks: Sequence[bytes], seconds: float = 1.0) -> None:
        """Return from tasks with a small value each: the id of the task."""
        for task in tasks:
            self._take(task)
        count = len(tasks)
        self.say(m.DoneMany(list(tasks), list(tasks), [self.world.now] * count, [seconds] * count))

    def finish_with(self, task: bytes, *results: m.Result, **more: Any) -> None:
        """Return from a task with these results."""
        self._take(task)
        self.say(m.Done(task, list(results), self.world.now, 1.0, **more))

    def fail(self, task: bytes, error: bytes = b"oops", *, retry: bool = False, **more: Any) -> None:
        """Raise from a task."""
        self._take(task)
        failed = m.Result(ERROR, error)
        self.say(
            m.Done(
                task, [failed], self.world.now, 1.0, retry=retry, failed="TASK_EXECUTION_EXCEPTION", **more
            )
        )

    def hand_back(self, *tasks: bytes) -> None:
        """Give back tasks that were not started."""
        for task in tasks:
            self._take(task)
        self.say(m.HandBack(list(tasks)))

    def block(self, *objects: bytes, task: bytes | None = None, timed: bool = False, need: int = 1) -> None:
        """Wait for objects."""
        task = task or self.tasks[0]
        self.wait_for(*objects, task=task, timed=timed, need=need)
        self.say(m.Blocked(task, list(objects), timed=timed))

    def runs_code(self) -> bool:
        """Return whether it runs a task or a call that does not wait."""
        if self.actor is None or self.tasks:
            return any(task not in self.waits for task in self.tasks)
        return bool(self.calls and not self.waits and not self.awaited)

    def unblock(self, task: bytes | None = None) -> None:
        """Go on."""
        self.waits.pop(task or self.tasks[0], None)
        self.say(m.Unblocked(task or self.tasks[0]))

    def become(self) -> bytes:
        """Run the constructor of the actor that it was told to be; return the actor."""
        assert self.actor is not None
        self.finish(self.actor.run.task)
        return self.actor.actor


def result(task: bytes, index: int = 1) -> bytes:
    """Return the id of a task's result."""
    return ids.object_id(task, index)


def handle(actor: bytes) -> bytes:
    """Return the object that stands for the handles of an actor."""
    return handle_id(actor)


def slots(needs: Sequence[bytes]) -> Slots:
    """Return dependencies as positional arguments."""
    return list(enumerate(needs))


def load_error(data: bytes) -> Exception:
    """Return a serialized exception."""
    error = pickle.loads(data)
    assert isinstance(error, Exception)
    return error
