"""A node's state machine among fake processes that do random things at random speeds.

Messages of one connection stay in order; everything else may happen in any order. The host carries
out the machine's commands some time later, and sometimes fails to. After every step the machine is
compared with the world around it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from skate._base import ids
from skate._base.object_ref import ERROR
from skate._engine.common import failures
from skate._engine.local.state import exits
from skate._engine.local.state.machine import Machine
from skate._engine.local.wire import messages as m
from tests.engine.local.state.simulation import invariants
from tests.engine.local.state.simulation.choices import Choices
from tests.engine.local.state.simulation.failure import Violation
from tests.engine.local.state.simulation.memory import Memory
from tests.engine.local.state.simulation.processes import PAGE, Driver, Process
from tests.engine.local.state.simulation.profiles import ACTORS, BROKEN, PROFILES, TASKS
from tests.engine.local.state.simulation.users import Users
from tests.engine.local.state.simulation.workers import Worker

BATCH = 25  # percent of messages that the node handles together with the one before


class Simulation:
    """The machine, the processes, the host, and the truth about them."""

    def __init__(self, choices: Choices, tell: Callable[[str], None] | None = None) -> None:
        self.choices = choices
        choices.next_step()
        self._tell = tell
        self.profile = PROFILES[choices.below(len(PROFILES))]
        self.say("the story is about %s", self.profile.name)
        self.now = 1.0
        self.transitions = 0
        gpus = choices.below(3)
        self.budget = PAGE * (4 + choices.below(self.profile.pages))
        self.machine = Machine(
            resources={"CPU": 2.0 + choices.below(3), "GPU": float(gpus), "rare": 1.0},
            devices={"GPU": [str(index) for index in range(gpus)]},
            labels={},
            node_id=b"n" * 28,
            budget=self.budget,
            private=False,
        )
        self.memory = Memory(self)
        self.processes: dict[int, Process] = {}
        self.host: deque[Any] = deque()  # messages of the host to the machine, in order
        self.starting: list[m.StartWorker] = []
        self.doomed: list[int] = []
        self.preparing: list[m.StartWorker] = []  # workers whose environment is being made
        names = [*TASKS, *ACTORS]
        self.catalogue: list[m.TaskTemplate] = [*TASKS.values(), *ACTORS.values()]
        self.task_templates = [names.index(name) for name in self.profile.tasks]
        self.actor_templates = [names.index(name) for name in self.profile.actors]
        self.bundles = ({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 2.0}, {"GPU": 0.5}, {"CPU": 50.0})
        self.groups: list[bytes] = []
        self.freed: set[bytes] = set()
        self.failed_streams: set[bytes] = set()
        self.tainted: set[bytes] = set()  # objects that a process referred to when it died
        self.ended_jobs: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.parents: dict[bytes, bytes] = {}
        self.allowed_runs: dict[bytes, int] = {}
        self.runs: dict[bytes, int] = {}
        self._payloads: dict[bytes, list[bytes]] = {b"": []}
        self._direct: dict[tuple[int, int], deque[Any]] = {}
        self._errors: dict[bytes, tuple[str, bytes]] = {}
        self._last_error = 0
        self._prepared: set[str] = set()
        self.disk_failed = False
        self.users = Users(self)
        self._join()

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        """Let one random thing happen."""
        kind = self.choices.below(1000)
        if kind < 400:
            self._to_node()
        elif kind < 650:
            self._to_process()
        elif kind < 920:
            self._act()
        elif kind < 970:
            self._host_acts()
        elif kind < 990:
            self._clock()
        elif kind < 1000 - self.profile.deaths:
            self._to_node()
        else:
            self._rare()

    def say(self, text: str, *args: object) -> None:
        """Write a line of the history, if it is recorded."""
        if self._tell is not None:
            self._tell(text % tuple(self.describe(arg) for arg in args))

    def describe(self, value: object) -> str:
        """Return a value with short names in it."""
        if isinstance(value, bytes):
            return _read_error(value)[0] if value.startswith(b"\x80\x05") else self.name(value)
        if isinstance(value, list | tuple):
            return "[" + ", ".join(map(self.describe, value)) + "]"
        if isinstance(value, m.TaskTemplate | m.ActorOptions):
            value = {name: getattr(value, name) for name in value.__struct_fields__}
            return str(
                {name: field for name, field in value.items() if field not in (b"", 0, "", [], {}, -1, 1)}
            )
        if isinstance(value, m.Message):
            fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
            said = [
                f"{name}={self.describe(field)}"
                for name, field in fields
                if field not in (b"", 0, "", [], {})
            ]
            return f"{type(value).__name__}({', '.join(said)})"
        return str(value)

    def _speaking(self) -> list[deque[Any]]:
        boxes: list[deque[Any]] = [p.outbox for p in self.processes.values() if p.outbox]
        if self.host:
            boxes.append(self.host)
        return boxes

    def _to_node(self) -> None:
        """Deliver the next message of some connection, or a few of several before the node settles."""
        speaking = self._speaking()
        if not speaking:
            self._to_process()
            return
        self._feed(self.choices.pick(speaking))
        while self.choices.chance(BATCH):
            speaking = self._speaking()
            if not speaking:
                break
            self._feed(self.choices.pick(speaking))
        self.settle()

    def _feed(self, box: deque[Any]) -> None:
        source, message, about = box.popleft()
        self.say("%s -> node: %s", source or "host", message)
        self.transitions += 1
        if type(message) is m.WorkerGone:
            invariants.handle_death(self, message)
            self.processes.pop(message.number, None)
        else:
            self.machine.handle(source, message, self.now)
            if type(message) is m.Done:
                failed = any(result.state == ERROR for result in message.results)
                if failed and message.task not in self.machine.tasks.table:
                    self.failed_streams.add(message.task)
        if about:
            process = self.processes.get(source)
            if process is not None:
                process.told(about)
        self.route()

    def settle(self) -> None:
        """Let the machine schedule, and compare it with the world."""
        self.machine.settle()
        self.route()
        invariants.check(self)

    def route(self) -> None:
        """Carry what the machine has said to whom it concerns."""
        for receiver, message in self.machine.take():
            self.say("node -> %s: %s", receiver or "host", message)
            if not receiver:
                self._effect(message)
                continue
            process = self.processes.get(receiver)
            if receiver not in self.machine.peers:
                raise Violation(f"the node speaks to {receiver}, which is gone: {message}")
            if process is None:
                raise Violation(f"the node speaks to {receiver}, which has not started: {message}")
            if type(message) is m.Allocated and not message.reused:
                self.memory.created(message.segment, message.size)
            if process.alive:
                process.inbox.append(message)

    def _to_process(self) -> None:
        """Let some process handle a message."""
        waiting: list[Any] = [p for p in self.processes.values() if p.inbox and p.alive]
        waiting += [key for key, box in self._direct.items() if box]
        if not waiting:
            self._act()
            return
        chosen = self.choices.pick(waiting)
        if isinstance(chosen, Process):
            self.say("%s handles %s", chosen, chosen.inbox[0])
            chosen.receive()
        else:
            self._deliver_directly(chosen)
        self._pump()

    def _deliver_directly(self, key: tuple[int, int]) -> None:
        sender, receiver = key
        message = self._direct[key].popleft()
        process = self.processes.get(receiver)
        if process is None or not process.alive:
            self._direct[key].clear()
            return
        self.say("%s -> %s: %s", sender, process, message)
        if isinstance(message, m.Reply | m.CallItem):
            process.links[message.task[8:24]].arrived(message)
        elif isinstance(process, Worker) and process.serving:
            process.calls.append(message)

    def _pump(self) -> None:
        for process in self.processes.values():
            if process.alive:
                for link in process.links.values():
                    if link.waiting:
                        link.pump()

    def _act(self) -> None:
        """Let some process do something of its own."""
        able = [p for p in self.processes.values() if p.alive and p.can_act()]
        if not able:
            self._host_acts()
            return
        process = self.choices.pick(able)
        if isinstance(process, Worker):
            process.act()
        else:
            self.users.act(process, process.frame)

    def _clock(self) -> None:
        self.now += self.choices.pick((0.001, 0.006, 0.006, 1.1, 11.0, 61.0))
        self.say("the clock shows %s", self.now)
        self.transitions += 1
        self.machine.tick(self.now)
        self.route()
        self.settle()

    def _rare(self) -> None:
        choices = self.choices
        drivers = [p for p in self.processes.values() if isinstance(p, Driver) and p.alive]
        workers = [p for p in self.processes.values() if isinstance(p, Worker) and p.alive]
        what = choices.below(10)
        if what < self.profile.workers_die and workers:
            self.end(choices.pick(workers), -9, crash=True)
        elif what < 9 and len(drivers) < 3:
            self._join()
        elif len(drivers) > 1:
            self.end(choices.pick(drivers), None, crash=choices.chance(50))

    # ------------------------------------------------------------ processes

    def _join(self) -> None:
        peer = self.machine.connect_driver({"namespace": ""}, 100 + len(self.processes), self.now)
        self.processes[peer.number] = Driver(self, peer.number, peer.job)
        self.say("driver %s joins", peer.number)
        if self.choices.chance(50):
            self.machine.scheduler.prestart(peer.job)
            self.route()

    def end(self, process: Process, code: int | None, *, crash: bool = False) -> None:
        """A process ends; what a crashed one had not sent yet is lost."""
        self.say("%s ends with %s", process, code)
        process.alive = False
        if crash and process.outbox:
            for _ in range(self.choices.below(min(process.unsent, len(process.outbox)) + 1)):
                self.tainted.update(process.outbox.pop()[2])  # what it said of these, nobody hears
        self.tainted.update(process.refs)
        self.memory.process_gone(process)
        process.inbox.clear()
        last_begun = process.last_begun if isinstance(process, Worker) else None
        process.outbox.append((0, m.WorkerGone(process.number, code, last_begun=last_begun), ()))
        if isinstance(process, Driver):
            self.ended_jobs.add(process.job)

    def direct(self, sender: Process, receiver: Process) -> deque[Any]:
        """Return what is on the way from one process to another."""
        return self._direct.setdefault((sender.number, receiver.number), deque())

    def connect(self, address: str) -> Worker | None:
        """Return the actor's process that listens at an address, if it still does."""
        process = self.processes.get(int(address[1:]))
        return process if isinstance(process, Worker) and process.alive else None

    def reply_directly(self, worker: Worker, caller: int, message: Any) -> None:
        """Send an answer over the caller's own connection."""
        process = self.processes.get(caller)
        if process is not None and process.alive:
            self.direct(worker, process).append(message)

    # ------------------------------------------------------------ the host

    def _effect(self, message: Any) -> None:
        if isinstance(message, m.StartWorker):
            if message.environment and message.environment not in self._prepared:
                self.preparing.append(message)
            else:
                self.starting.append(message)
        elif isinstance(message, m.KillProcess):
            self.doomed.append(message.number)
            peer = self.machine.peers[message.number]
            if peer.killed == exits.FORCED and not all(
                task.cancelled for task in list(peer.tasks.values())[:1]
            ):
                raise Violation(f"worker {peer.number} is killed for a task that it does not run")
        elif isinstance(message, m.DeleteSegment):
            self.memory.delete(message.segment)
        elif isinstance(message, m.Stop):
            raise Violation("a node that is not private stops")
        else:
            if isinstance(message, m.Restore):
                self.memory.created(message.segment, -(-message.size // PAGE) * PAGE)
            if isinstance(message, m.Spill):
                obj = self.machine.directory.objects.get(message.id)
                if obj is not None and obj.pinned:
                    raise Violation(f"{self.name(message.id)} is spilled while it is pinned")
            self.memory.jobs.append(message)

    def _host_acts(self) -> None:
        able: list[Callable[[], None]] = []
        if self.starting:
            able.append(self._start_worker)
        if self.doomed:
            able.append(self._kill)
        if self.memory.jobs:
            able.append(self._move_object)
        if self.preparing:
            able.append(self._environment_done)
        if self.choices.chance(3):
            able.append(self._press)
        if able:
            self.choices.pick(able)()

    def _press(self) -> None:
        """Memory runs short: the machine ends a worker, and never a driver."""
        self.say("memory runs short")
        sizes = {number: self.choices.below(1000) for number in self.machine.peers}
        self.host.append((0, m.MemoryPressure(96, 100, "", 0.95, sizes, []), ()))

    def _start_worker(self) -> None:
        message = self.choices.pick(self.starting)
        self.starting.remove(message)
        number = message.number
        if self.choices.chance(6):
            self.say("worker %s fails to start", number)
            if number in self.machine.peers and self.choices.chance(30):
                hello = m.Hello("worker", 1000 + number, number, f"w{number}", failed="the hook raised")
                self.host.append((number, hello, ()))
            code = None if self.choices.chance(20) else 1  # None: the template was killed
            self.host.append((0, m.WorkerGone(number, code, ["no such module"]), ()))
        elif self.choices.chance(6):
            self.say("worker %s is refused by the system", number)
            if number in self.machine.peers and self.choices.chance(30):
                hello = m.Hello("worker", 1000 + number, number, f"w{number}", refused="no thread")
                self.host.append((number, hello, ()))
                self.host.append((0, m.WorkerGone(number, 1), ()))
            else:
                self.host.append((0, m.WorkerGone(number, refused="no process"), ()))
        else:
            self.say("worker %s starts", number)
            self.processes[number] = Worker(self, number, message.job)

    def _kill(self) -> None:
        number = self.choices.pick(self.doomed)
        process = self.processes.get(number)
        if process is not None:
            self.doomed.remove(number)
            if process.alive:
                self.end(process, -9, crash=True)
        elif number not in [message.number for message in self.starting]:
            self.doomed.remove(number)

    def _move_object(self) -> None:
        fails = self.choices.chance(3)
        self.disk_failed = self.disk_failed or fails
        answer = self.memory.do_next(fails=fails)
        if answer is not None:
            self.host.append((0, answer, ()))

    def _environment_done(self) -> None:
        """An environment is made, or cannot be; a killed worker that waited for it is started all the same."""
        environment = self.choices.pick(self.preparing).environment
        waiting = [message for message in self.preparing if message.environment == environment]
        self.preparing = [message for message in self.preparing if message.environment != environment]
        if environment == BROKEN:
            self.host.append((0, m.EnvironmentReady(environment, "no such package"), ()))
        else:
            self._prepared.add(environment)
            self.starting += [message for message in waiting if message.number in self.machine.peers]

    # ------------------------------------------------------------ the truth

    def payload(self, contains: list[bytes]) -> bytes:
        """Return the bytes of a small value with these references in it."""
        if not contains:
            return b""
        data = b"v%d" % len(self._payloads)
        self._payloads[data] = contains
        return data

    def inside(self, data: bytes) -> list[bytes]:
        """Return the references inside a small value."""
        return self._payloads[data]

    def size(self) -> int:
        """Return the size of a large value; now and then one that never fits."""
        if self.choices.chance(2):
            return self.budget + PAGE
        return PAGE * (1 + self.choices.below(4)) - self.choices.below(100)

    def seconds(self) -> float:
        """Return how long a task took."""
        return 0.02 if self.choices.chance(self.profile.long) else 0.0

    def user_error(self) -> bytes:
        """Return an exception of user code."""
        self._last_error += 1
        return b"E%d" % self._last_error

    @staticmethod
    def cancelled_error(task: bytes) -> m.Result:
        """Return what a worker says of a cancelled task."""
        return m.Result(ERROR, failures.task_cancelled(task))

    def submitted(self, task: bytes, parent: bytes, spec: m.TaskTemplate) -> None:
        """Note a new task."""
        self.parents[task] = parent
        self.allowed_runs[task] = 1 + spec.max_retries if spec.max_retries >= 0 else 1_000_000

    def started(self, worker: Worker, task: bytes) -> None:
        """Note that a worker starts a task, for the first time or again."""
        self.runs[task] = self.runs.get(task, 0) + 1
        self.say("%s starts %s", worker, task)
        if task not in self.machine.tasks.table:
            return  # given up, with its number of retries for memory; the worker does not know yet
        if self.runs[task] > self.allowed_runs[task] + self.machine.tasks.memory_retries.get(task, 0):
            raise Violation(f"{self.name(task)} is run {self.runs[task]} times")

    def creation_started(self, worker: Worker) -> None:
        """Note that a worker runs a constructor."""
        self.say("%s becomes actor %s", worker, worker.actor)

    def cancel(self, process: Process, task: bytes, *, force: bool, recursive: bool) -> None:
        """Cancel a task on behalf of a process."""
        self.cancelled.add(task)
        process.post(m.Cancel(task, force, recursive))

    def excuse_actor(self, actor: bytes) -> None:
        """Note that an actor is ended on purpose."""

    def error_as_argument(self, task: bytes) -> None:
        """A task was given an error in place of an argument: it should have failed instead."""
        raise Violation(f"{self.name(task)} is run although one of its arguments is an error")

    def group_created(self, group: bytes, bundles: int) -> None:
        """Let tasks and actors use a placement group."""
        self.groups.append(group)
        at = len(self.catalogue)
        self.catalogue += [
            m.TaskTemplate(b"in", "in", {"CPU": 1.0}, group=group, bundle=bundles - 1, max_retries=1),
            m.TaskTemplate(b"any", "any", {"GPU": 0.5}, group=group),
            m.TaskTemplate(b"P", "P", {"CPU": 1.0}, group=group),
        ]
        self.task_templates += [at, at, at + 1]
        self.actor_templates.append(at + 2)

    def witness(self, process: Process, id: bytes, data: bytes) -> None:
        """A process is told of an error: it must have a cause."""
        if data.startswith(b"E") or self.machine.peers[process.number].killed:
            return
        if data not in self._errors:
            self._errors[data] = _read_error(data)
        kind, origin = self._errors[data]
        if kind == "TaskCancelledError":
            task = origin
            while task and task not in self.cancelled:
                task = self.parents.get(task, b"")
            excused = bool(task)
        elif kind in ("ObjectLostError", "OwnerDiedError", "ObjectFreedError"):
            excused = origin in self.tainted or origin[20:24] in self.ended_jobs
            if kind == "ObjectFreedError":
                excused = excused or origin in self.freed
        else:
            return
        if not excused:
            raise Violation(f"{process} is told {kind} of {self.name(origin)}, without a cause")

    def name(self, id: bytes) -> str:
        """Return a short name of a task, an object or an actor."""
        if not 16 <= len(id) <= ids.OBJECT_SIZE:
            return repr(id) if len(id) < 16 else f"{len(id)} bytes"
        if id.startswith(b"\xff" * 8):
            return f"actor {ids.process_of(id[8:])}.{id[15]}"
        number = int.from_bytes(id[ids.PROCESS_SIZE : 8], "big")
        text = f"{ids.process_of(id)}.{number}"
        if len(id) == ids.OBJECT_SIZE:
            return f"{text}:{ids.index_of(id)}"
        return text


def _read_error(data: bytes) -> tuple[str, bytes]:
    error = pickle.loads(data)
    text = str(error.args[0]) if error.args else ""
    for candidate in (getattr(error, "task_id", None), getattr(error, "object_ref_hex", None), text):
        try:
            return type(error).__name__, bytes.fromhex(str(candidate))
        except ValueError:
            continue
    return type(error).__name__, b""
