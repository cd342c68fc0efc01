"""The state machine of a node: one message in, any number of messages out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from skate._base import ids
from skate._base.object_ref import SHARED
from skate._engine.common.resources import Pool, to_units
from skate._engine.local.state import exits
from skate._engine.local.state.actors import Actors
from skate._engine.local.state.deadlocks import Deadlocks
from skate._engine.local.state.directory import Directory
from skate._engine.local.state.groups import Groups
from skate._engine.local.state.memory_pressure import MemoryPressure
from skate._engine.local.state.preloads import Preloads
from skate._engine.local.state.records import ACTOR, HOST, IDLE, LEAVING, STARTING, Key, Peer
from skate._engine.local.state.scheduler import OVER, Scheduler
from skate._engine.local.state.store import Store
from skate._engine.local.state.tasks import Tasks
from skate._engine.local.state.views import Views
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import pack

T = TypeVar("T")

Outgoing = tuple[int, Any]


class Machine:
    """Makes all decisions of a node, without side effects.

    `handle(source, message, now)` handles a message of a process, or of the node process itself as HOST; `settle()`
    schedules; `take()` returns the messages to send as (receiver, message). Messages to HOST are effects: start or
    kill a process, delete, spill or restore shared memory.
    """

    def __init__(
        self,
        *,
        resources: dict[str, float],
        devices: dict[str, list[str]],
        labels: dict[str, str],
        node_id: bytes,
        budget: int,
        session: str = "",
        private: bool = True,
        oom_retries: int = -1,
        learns_imports: bool = True,
    ) -> None:
        self.now = 0.0
        self.node_id = node_id
        self.session = session
        self.labels = labels
        self.private = private
        self.peers: dict[int, Peer] = {}
        self.functions: dict[bytes, bytes] = {}
        self.job_info: dict[bytes, dict[str, Any]] = {}
        self.gone: list[Peer] = []
        self.failed_environments: dict[str, str] = {}
        self._outgoing: list[Outgoing] = []
        self._next_peer = 0
        self._next_job = 0
        self._perhaps_over: set[bytes] = set()  # ended jobs that may now be fully drained
        self._owner = 0  # the driver that owns a private node
        self.directory = Directory(self)
        self.store = Store(self, budget)
        self.tasks = Tasks(self)
        self.preloads = Preloads(self, learns_imports)
        self.scheduler = Scheduler(self, Pool(to_units(resources), devices))
        self.actors = Actors(self)
        self.groups = Groups(self)
        self.views = Views(self)
        self.deadlocks = Deadlocks(self)
        self.memory_pressure = MemoryPressure(self, oom_retries)
        self._handlers = self._routes()

    # ------------------------------------------------------------ input and output

    def handle(self, source: int, message: Any, now: float) -> None:
        """Handle one message of a process, or of the node process itself."""
        self.now = now
        self._handlers[type(message)](source, message)

    def handle_all(self, source: int, messages: Sequence[Any], now: float) -> None:
        """Handle messages of a process up to its goodbye: later ones are from other threads of it."""
        self.now = now
        handlers, peers = self._handlers, self.peers
        for message in messages:
            if source not in peers:
                return
            handlers[type(message)](source, message)

    def settle(self) -> None:
        """Schedule the work that the handled messages made possible."""
        if self._perhaps_over:
            self._forget_jobs()
        self.groups.settle()
        self.scheduler.settle()

    def take(self) -> list[Outgoing]:
        """Return the messages to send since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def step(self, source: int, message: Any, now: float = 0.0) -> list[Outgoing]:
        """Handle one message, settle, and return the messages to send; for tests."""
        self.handle(source, message, now)
        self.settle()
        return self.take()

    def send(self, receiver: int, message: Any) -> None:
        """Send a message to a process, or to the node process itself."""
        self._outgoing.append((receiver, message))

    def last_sent(self, receiver: int, kind: type[T]) -> T | None:
        """Return the last message if it is of this type and for this process, so that it can be extended."""
        if self._outgoing:
            last, message = self._outgoing[-1]
            if last == receiver and type(message) is kind:
                return message
        return None

    def answer(self, source: int, request: int, value: Any) -> None:
        """Answer a request."""
        self.send(source, m.Answer(request, pack(value)))

    def refuse(self, source: int, request: int, error: bytes) -> None:
        """Answer a request with an exception."""
        self.send(source, m.Answer(request, error=error))

    def warn(self, text: str, job: bytes = b"") -> None:
        """Print a warning on every driver, or on those of a job."""
        for peer in self.peers.values():
            if peer.is_driver and (not job or peer.job == job):
                self.send(peer.number, m.Output("skate", 0, [text], error=True))

    def _routes(self) -> dict[type, Callable[[int, Any], None]]:
        directory, tasks, scheduler = self.directory, self.tasks, self.scheduler
        store, actors, groups = self.store, self.actors, self.groups
        return {
            m.Submit: tasks.submit,
            m.SubmitMany: tasks.submit_many,
            m.Done: tasks.done,
            m.DoneMany: tasks.private_results.done_many,
            m.Release: lambda source, x: directory.release(source, x.ids),
            m.Hold: lambda source, x: directory.hold(source, x.ids),
            m.Blocked: scheduler.blocked,
            m.Unblocked: scheduler.unblocked,
            m.Stalled: lambda source, _: self.deadlocks.suspect(source),
            m.WaitReport: lambda source, x: self.deadlocks.report(source, x),
            m.Subscribe: lambda source, x: directory.subscribe(source, x.ids),
            m.Register: directory.register,
            m.Allocate: store.allocate,
            m.Abandon: lambda source, x: store.abandon(x.segment, source),
            m.Pin: lambda source, x: store.pin(source, x.ids),
            m.Unpin: lambda source, x: store.unpin(source, x.ids),
            m.Free: lambda _, x: directory.free_now(x.ids),
            m.Inquire: lambda _, x: directory.unknown(x.id),
            m.Define: lambda source, x: scheduler.define(source, x.number, x.template),
            m.Export: self._export,
            m.Item: tasks.item,
            m.Consumed: lambda _, x: tasks.consumed(x),
            m.HandBack: lambda source, x: scheduler.handed_back(source, x.tasks),
            m.Cancel: lambda _, x: tasks.cancel(x),
            m.Imported: self.preloads.imported,
            m.CreateActor: actors.create,
            m.ActorWatch: lambda source, x: actors.watch(source, x.actor),
            m.KillActor: lambda _, x: actors.kill(x.actor, no_restart=x.no_restart),
            m.ActorExit: lambda _, x: actors.exited(x.actor, x.reason),
            m.ReplyVia: self._reply_via,
            m.CreateGroup: groups.create,
            m.RemoveGroup: lambda _, x: groups.remove(x.group),
            m.WatchGroup: groups.watch,
            m.Ask: self.views.ask,
            m.Events: lambda source, x: self.views.events(source, x),
            m.PrivateObjects: lambda source, x: self.views.private_objects(source, x),
            m.Stopped: self._stopped,
            m.FlushOutput: lambda source, x: self.send(HOST, m.FlushOutput(x.request, source)),
            m.Hello: self._hello,
            m.Goodbye: lambda source, _: self._goodbye(source),
            m.WorkerGone: lambda _, x: self._gone(x.number, x.code, x.last_lines, x.last_begun, x.refused),
            m.TemplateReady: lambda _, x: self.preloads.ready(x.number),
            m.TemplateGone: lambda _, x: self.preloads.gone(x.number),
            m.MemoryPressure: lambda _, x: self.memory_pressure.pressure(x),
            m.Spilled: lambda _, x: store.spilled(x.id, x.error),
            m.Restored: lambda _, x: store.restored(x),
            m.EnvironmentReady: lambda _, x: self.environment_failed(x.environment, x.error),
        }

    def _stopped(self, source: int, message: m.Stopped) -> None:
        """Forward a breakpoint to the driver of the worker's job."""
        driver = self.job_info.get(self.peers[source].job, {}).get("driver")
        if driver:
            self.send(driver, message)

    # ------------------------------------------------------------ processes

    def connect_driver(self, info: dict[str, Any], pid: int, now: float) -> Peer:
        """Admit a driver: as a new job, unless it is an observer."""
        self.now = now
        number = 0
        if not info.get("observer"):
            number = self._next_job = self._next_job + 1
            if self.private and not self._owner:
                self._owner = self._next_peer + 1
        job = ids.JobID.from_int(number).binary()
        peer = self._new_peer(is_driver=True, job=job, environment="")
        peer.pid = pid
        peer.state = IDLE
        peer.started = now
        peer.info = info
        self.job_info[job] = {**info, "pid": pid, "started": now, "ended": 0.0, "driver": peer.number}
        return peer

    def start_worker(self, key: Key, function: bytes = b"") -> None:
        """Have the node process start a worker of a kind, which will probably load a function or class first."""
        job, environment, for_devices = key
        peer = self._new_peer(is_driver=False, job=job, environment=environment)
        peer.for_devices = for_devices
        peer.started = self.now
        peer.preloaded = self.preloads.template_for(key, function) if function else 0
        self.send(HOST, m.StartWorker(peer.number, environment, job, peer.preloaded))

    def _new_peer(self, *, is_driver: bool, job: bytes, environment: str) -> Peer:
        self._next_peer += 1
        peer = Peer(self._next_peer, is_driver=is_driver, job=job, environment=environment)
        self.peers[peer.number] = peer
        return peer

    def _hello(self, source: int, message: m.Hello) -> None:
        """Handle the readiness of a started worker."""
        peer = self.peers[source]
        peer.pid = message.pid
        peer.address = message.address
        if message.failed or message.refused:
            peer.info = {"refused": message.refused} if message.refused else {"failed": message.failed}
            return
        self.scheduler.worker_ready(peer)

    def _goodbye(self, source: int) -> None:
        """Handle the departure of a driver, or the announced end of a worker."""
        peer = self.peers.get(source)
        if peer is None or peer.is_driver:
            self._gone(source, 0, [])
        else:
            peer.said_goodbye = True

    def kill(self, peer: Peer, why: str) -> None:
        """Have the node process kill a worker."""
        if not peer.killed:
            peer.killed = why
        self.scheduler.retire(peer)
        self.send(HOST, m.KillProcess(peer.number))

    def _gone(
        self,
        number: int,
        code: int | None,
        lines: list[str],
        last_begun: bytes | None = None,
        refused: str = "",
    ) -> None:
        """Handle the end of a process: release its holds, and retry or fail its tasks."""
        peer = self.peers.pop(number, None)
        if peer is None:
            return
        for actor in self.actors.table.values():
            actor.watchers.discard(number)
        if peer.is_driver:
            self._job_gone(peer)
        elif peer.state is STARTING:
            refused = refused or str(peer.info.get("refused", ""))
            self.scheduler.worker_failed_to_start(peer, code, lines, refused)
        if not refused:
            self.scheduler.starts.process_ended()
        self.scheduler.retire(peer)
        if peer.actor is not None:
            self.actors.worker_gone(peer, code, lines, last_begun)
        elif not peer.is_driver:
            self.tasks.worker_gone(peer, code, lines, last_begun)
        peer.state = LEAVING if peer.state is not ACTOR else ACTOR
        self.store.process_gone(number, peer.segments, peer.pins)
        self.directory.process_gone(number, peer.holds)
        self.tasks.owner_gone(number, survives=peer.said_goodbye)
        # Actors that an actor created end with it; those of a task only after an unclean exit of its worker.
        if not peer.is_driver and (peer.actor is not None or not peer.said_goodbye):
            self.actors.owner_gone(number)
        self.views.peer_gone(number)
        self.job_may_be_over(peer.job)
        peer.ended = self.now
        peer.exit_code = code
        if not peer.info.get("observer") and not refused:
            self.gone.append(peer)
        del self.gone[:-1000]

    def _job_gone(self, driver: Peer) -> None:
        self.job_info[driver.job]["ended"] = self.now
        if driver.number == self._owner:
            self.send(HOST, m.Stop("the driver is gone"))
        self.actors.job_gone(driver.job)
        self.groups.job_gone(driver.job)
        self.tasks.job_gone(driver.job)
        for peer in list(self.peers.values()):
            if peer.job == driver.job and not peer.is_driver and not peer.survives_job():
                for template in peer.templates.values():
                    template.impossible = OVER  # for tasks in its last messages
                self.kill(peer, exits.JOB_ENDED)

    def job_may_be_over(self, job: bytes) -> None:
        """Check an ended job for remaining work soon."""
        if self.job_info[job]["ended"]:
            self._perhaps_over.add(job)

    def _forget_jobs(self) -> None:
        """Drop ended jobs without a process, task or detached actor."""
        jobs, self._perhaps_over = self._perhaps_over, set()
        jobs -= {peer.job for peer in self.peers.values()}
        if jobs:
            jobs -= {task.template.cls.job for task in self.tasks.table.values()}
        for job in jobs:
            self.groups.job_gone(job)  # the last messages of a worker may have created one
            self.scheduler.forget_job(job)

    def environment_failed(self, environment: str, error: str) -> None:
        """Fail the work that needs a runtime environment which could not be created."""
        from skate._engine.common import failures

        self.failed_environments[environment] = error
        for peer in list(self.peers.values()):
            # None of its workers was started; those killed meanwhile are gone too.
            if peer.environment == environment and (
                peer.state is STARTING or (peer.killed and not peer.address)
            ):
                del self.peers[peer.number]
                self.job_may_be_over(peer.job)
        self.scheduler.environment_failed(environment, failures.environment_failed(error))

    # ------------------------------------------------------------ functions and replies

    def _export(self, _: int, message: m.Export) -> None:
        self.functions.setdefault(message.key, message.code)

    def _reply_via(self, source: int, message: m.ReplyVia) -> None:
        """Forward an actor's reply after registering its objects."""
        reply = message.reply
        directory = self.directory
        caller = message.caller
        if caller not in self.peers:
            for result in reply.results:
                directory.discard(result.segment, source)
            return

        first = message.item or 1
        for index, result in enumerate(reply.results, first):
            if result.state != SHARED and not result.contains:
                continue  # the caller keeps it private, or registers it once its reference leaves the process
            obj = directory.declare(ids.object_id(reply.task, index), caller)
            obj.waiters = [number for number in obj.waiters or () if number != caller]
            directory.fulfil(obj, result, source)
        if message.item:
            self.send(caller, m.CallItem(reply.task, message.item, reply.results[0], message.limited))
        else:
            self.send(caller, reply)

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        soonest = None
        for part in (self.scheduler, self.store, self.views, self.deadlocks, self.tasks):
            wait = part.next_tick()
            if wait is not None and (soonest is None or wait < soonest):
                soonest = wait
        return soonest

    def tick(self, now: float) -> None:
        """Do the work that is due."""
        self.now = now
        self.scheduler.tick()
        self.store.tick()
        self.views.tick()
        self.deadlocks.tick()
        self.tasks.tick()
