"""The end of every history: all work completes, and nothing must be left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.ids import CREATION
from skate._base.object_ref import PENDING
from skate._engine.common.states import ALIVE, DEAD
from skate._engine.local.wire import messages as m
from tests.engine.local.state.simulation.failure import Violation
from tests.engine.local.state.simulation.processes import Driver, Process
from tests.engine.local.state.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.simulation import Simulation

ROUNDS = 3000


class Ending:
    """Brings a simulation to rest, and looks at what is left."""

    def __init__(self, world: Simulation) -> None:
        self._world = world

    def run(self) -> None:
        """End everything step by step."""
        world = self._world
        world.choices.calm = True
        for text, act, check in (
            ("everything finishes", self._nothing, self._nobody_waits_for_memory),
            ("actors and groups end", self._end_actors_and_groups, self._all_tasks_are_over),
            ("everybody lets go", self._let_go, self._no_object_is_left),
            ("the drivers leave", self._leave, self._nobody_is_left),
        ):
            world.say("---- %s", text)
            act()
            self._come_to_rest()
            check()

    # ------------------------------------------------------------ acts

    def _come_to_rest(self) -> None:
        world = self._world
        quiet = 0
        for _ in range(ROUNDS):
            if self._round():
                quiet = 0
                continue
            # Nothing happens by itself any more; time alone may change something.
            quiet += 1
            if quiet > 6:
                return
            world.now += max(4.0, world.machine.next_tick() or 0.0)
            world.machine.tick(world.now)
            world.route()
            world.settle()
        raise Violation("the node does not come to rest")

    def _round(self) -> bool:
        """Let everything that can happen happen once; return whether anything did."""
        world = self._world
        happened = False
        for process in list(world.processes.values()):
            while process.outbox:
                world._feed(process.outbox)
                world.settle()
                happened = True
        while world.host:
            world._feed(world.host)
            world.settle()
            happened = True
        for process in list(world.processes.values()):
            while process.inbox and process.alive:
                world.say("%s handles %s", process, process.inbox[0])
                process.receive()
                happened = True
        for key, box in list(world._direct.items()):
            while box:
                world._deliver_directly(key)
                happened = True
        world._pump()
        for pending, act in self._host_acts():
            while pending():
                act()
                happened = True
        for process in list(world.processes.values()):
            if isinstance(process, Worker) and process.alive and process.act():
                happened = True
            for stream in process.frame.streams:
                while process.alive and stream.take(process.frame):
                    happened = True
        return happened

    def _host_acts(self) -> list[tuple[Callable[[], object], Callable[[], None]]]:
        world = self._world
        return [
            (lambda: world.starting, world._start_worker),
            (lambda: world.doomed, world._kill),
            (lambda: world.memory.jobs, world._move_object),
            (lambda: world.preparing, world._environment_done),
        ]

    def _nothing(self) -> None:
        """Let what runs finish."""

    def _some_driver(self) -> Process:
        for process in self._world.processes.values():
            if isinstance(process, Driver) and process.alive:
                return process
        raise AssertionError("there is always a driver")

    def _end_actors_and_groups(self) -> None:
        driver = self._some_driver()
        for id, actor in self._world.machine.actors.table.items():
            if actor.state is not DEAD:
                driver.post(m.KillActor(id))
        for group in self._world.machine.groups.table:
            driver.post(m.RemoveGroup(group))

    def _let_go(self) -> None:
        for process in self._world.processes.values():
            if process.alive:
                process.end_frame(process.frame)
                process.tidy()

    def _leave(self) -> None:
        for process in self._world.processes.values():
            if isinstance(process, Driver) and process.alive:
                self._world.end(process, None)

    # ------------------------------------------------------------ checks

    def _nobody_waits_for_memory(self) -> None:
        store = self._world.machine.store
        if store._waiting:
            raise Violation(f"requests for memory are never answered: {list(store._waiting)}")
        for process in self._world.processes.values():
            if process.alive and process.waits_for_answer():
                raise Violation(f"{process} waits for an answer that does not come")

    def _all_tasks_are_over(self) -> None:
        world = self._world
        left = [world.name(id) for id in world.machine.tasks.table]
        if left:
            raise Violation(f"tasks are left: {left}")
        for id, obj in world.machine.directory.objects.items():
            if obj.state == PENDING and not id.startswith(CREATION):
                raise Violation(f"{world.name(id)} is held, but will never be ready")
        for process in world.processes.values():
            if not process.alive:
                continue
            for id, reference in process.refs.items():
                if reference.state == PENDING and reference.subscribed and not id.startswith(CREATION):
                    raise Violation(f"{process} is never told that {world.name(id)} is ready")
            for task in process.expected:
                raise Violation(f"{process} never gets the result of {world.name(task)}")
            for stream in process.streams.values():
                raise Violation(
                    f"{process} is never told that the generator {world.name(stream.task)} has ended"
                )
            for stream in process.frame.streams:
                for index in range(stream.taken + 1, (stream.total or 0) + 1):
                    if index not in stream.items:
                        name = world.name(ids.object_id(stream.task, index))
                        raise Violation(f"{process} never gets item {name} of {stream.total}")

    def _no_object_is_left(self) -> None:
        world = self._world
        left = [
            f"{world.name(id)} held by {obj.holders}" for id, obj in world.machine.directory.objects.items()
        ]
        if left:
            raise Violation(f"objects are left: {left}")
        if world.memory.disk:
            raise Violation(f"objects are left on disk: {list(map(world.name, world.memory.disk))}")
        store = world.machine.store
        if store.used != store._spare_bytes or store._resident or store._orphans or store._restoring:
            raise Violation(f"{store.used} bytes are used, {store._spare_bytes} of them spare")

    def _nobody_is_left(self) -> None:
        machine = self._world.machine
        if machine.peers:
            left = [f"{peer.number} {peer.state}" for peer in machine.peers.values()]
            raise Violation(f"processes are left: {left}")
        scheduler = machine.scheduler
        if scheduler.templates or scheduler.classes or scheduler._idle:
            raise Violation("something is kept for jobs that are over")
        starts = scheduler.starts
        if starts._starting or starts._failures or starts._refusals:
            raise Violation("something is kept for jobs that are over")
        if machine.store.used:
            raise Violation(f"{machine.store.used} bytes of shared memory are left")
        if any(actor.state is ALIVE for actor in machine.actors.table.values()):
            raise Violation("an actor is left")
