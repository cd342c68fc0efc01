"""What must be true of the state machine after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base.object_ref import PENDING, SHARED
from skate._engine.common.resources import UNIT, Pool
from skate._engine.common.states import ALIVE, DEAD, QUEUED, RUNNING, WAITING
from skate._engine.local.session.segments import is_on_disk
from skate._engine.local.session.task_progress import run_id
from skate._engine.local.state import exits
from skate._engine.local.state.machine import Machine
from skate._engine.local.state.records import (
    ACTOR,
    IDLE,
    LEASED,
    LEAVING,
    STARTING,
    Peer,
    SchedulingClass,
    Task,
)
from skate._engine.local.wire import messages as m
from tests.engine.local.state.simulation.failure import Violation
from tests.engine.local.state.simulation.processes import handle
from tests.engine.local.state.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.simulation import Simulation


def check(world: Simulation) -> None:
    """Raise a Violation if anything is wrong."""
    machine = world.machine
    _check_tasks(world, machine)
    _check_workers(world, machine)
    _check_resources(world, machine)
    _check_objects(world, machine)
    _check_store(world, machine)
    _check_references(world, machine)
    _check_nothing_forgotten(world, machine)
    _check_jobs(world, machine)


# ---------------------------------------------------------------- tasks and workers


def _check_tasks(world: Simulation, machine: Machine) -> None:
    """Every task is in exactly one place."""
    table = machine.tasks.table
    queued: set[bytes] = set()
    scheduler = machine.scheduler
    for cls in scheduler.classes.values():
        if bool(cls.queue) != (cls in scheduler.waiting):
            raise Violation(f"a class with {len(cls.queue)} queued tasks is mistaken for another")
        for task in cls.queue:
            if task.state is not QUEUED or task.worker is not None or task.template.cls is not cls:
                raise Violation(f"{world.name(task.id)} is in a queue, but {task.state}")
            if task.id in queued:
                raise Violation(f"{world.name(task.id)} is queued twice")
            queued.add(task.id)
    if not queued <= table.keys():
        raise Violation(f"a task that is over is queued: {list(map(world.name, queued - table.keys()))}")
    given: set[bytes] = set()
    for peer in machine.peers.values():
        for id, task in peer.tasks.items():
            if task.state is not RUNNING or task.worker is not peer or table.get(id) is not task:
                raise Violation(f"{world.name(id)} is given to {peer.number}, but {task.state}")
            if id in given:
                raise Violation(f"{world.name(id)} is given to two workers")
            given.add(id)
    for id, task in table.items():
        if task.state is WAITING:
            _check_waiting(world, machine, task)
        elif task.state is QUEUED:
            if id not in queued and not any(task is each for _, each in machine.tasks._delayed):
                raise Violation(f"{world.name(id)} is lost: QUEUED, but in no queue")
            if task.cancelled:
                raise Violation(f"{world.name(id)} was cancelled, but waits to be run")
        elif task.state is RUNNING:
            if id not in given and not (task.actor is not None and task.actor.state is ALIVE):
                raise Violation(f"{world.name(id)} is lost: RUNNING, but on no worker")
        else:
            raise Violation(f"{world.name(id)} is {task.state} and still in the table")


def _check_waiting(world: Simulation, machine: Machine, task: Task) -> None:
    objects = machine.directory.objects
    pending = 0
    for _, id in task.dependencies:
        obj = objects.get(id)
        if obj is None:
            raise Violation(f"{world.name(task.id)} waits for {world.name(id)}, which was freed")
        if obj.state == PENDING:
            pending += 1
            if task not in obj.dependents:
                raise Violation(f"{world.name(task.id)} will not be told of {world.name(id)}")
    if pending != task.unresolved or not pending:
        raise Violation(
            f"{world.name(task.id)} waits for {task.unresolved} objects, but {pending} are pending"
        )


def _check_workers(world: Simulation, machine: Machine) -> None:
    """Workers are in the state that what they do says."""
    scheduler = machine.scheduler
    starting: dict[object, int] = {}
    idle: set[int] = set()
    for parked in scheduler._idle.values():
        for peer in parked:
            if peer.number in idle or peer.number not in machine.peers or peer.state is not IDLE:
                raise Violation(f"worker {peer.number} is parked, but {peer.state}")
            idle.add(peer.number)
    for cls in scheduler.classes.values():
        for number, peer in cls.leased.items():
            if peer.lease is not cls or peer.state is not LEASED or machine.peers.get(number) is not peer:
                raise Violation(f"worker {number} is leased to a class it does not know of")
    for peer in machine.peers.values():
        if peer.is_driver:
            continue
        state = peer.state
        if state is STARTING:
            key = (peer.job, peer.environment, peer.for_devices)
            starting[key] = starting.get(key, 0) + 1
        elif state is IDLE:
            if peer.tasks or peer.grant is not None or peer.lease is not None or peer.number not in idle:
                raise Violation(f"worker {peer.number} is IDLE, but busy or not to be found")
            if peer.killed:
                raise Violation(f"worker {peer.number} is IDLE, but was to be killed")
        elif state is LEASED:
            if not peer.tasks or peer.grant is None or peer.lease is None:
                raise Violation(f"worker {peer.number} is LEASED with {len(peer.tasks)} tasks")
            if any(task.template.cls is not peer.lease for task in peer.tasks.values()):
                raise Violation(f"worker {peer.number} has a task of another class than its lease")
        elif state is ACTOR:
            if peer.actor is None or (peer.grant is None and not peer.killed):
                raise Violation(f"worker {peer.number} is an ACTOR without one, or without its resources")
        elif state is LEAVING and (peer.grant is not None or peer.lease is not None):
            raise Violation(f"worker {peer.number} is LEAVING with resources")
        if state is not LEASED and state is not ACTOR and peer in scheduler._ahead:
            raise Violation(f"worker {peer.number} is {state} and has tasks ahead")
        if state is LEASED and len(peer.tasks) > 1 and peer not in scheduler._ahead:
            _check_recalled(world, peer)
    if not scheduler.classes.keys() >= {_class_key(cls) for cls in scheduler.waiting}:
        raise Violation("a class was forgotten though tasks of it wait")
    for key, count in scheduler.starts._starting.items():
        if count != starting.get(key, 0):
            raise Violation(f"{count} workers are thought to start, but {starting.get(key, 0)} do")
    for actor in machine.actors.table.values():
        worker = actor.worker
        if worker is not None and (
            worker.actor is not actor or machine.peers.get(worker.number) is not worker
        ):
            raise Violation("an actor has a worker that is not its own")
        if actor.state is ALIVE:
            if worker is None:
                raise Violation("an actor is ALIVE without a process")
            own = machine.directory.objects.get(actor.handle)
            if own is None or (not own.internal and own.holders <= {worker.number}):
                raise Violation("an actor is ALIVE without a handle, but for its own")
        named = machine.actors.names.get((actor.options.namespace, actor.options.name))
        if actor.options.name and (named is actor) != (actor.state is not DEAD):
            raise Violation(f"the name {actor.options.name} of an actor that is {actor.state} is wrong")


def _class_key(cls: SchedulingClass) -> tuple[object, ...]:
    return cls.job, cls.environment, tuple(sorted(cls.request.items())), cls.group, cls.bundle


def _check_recalled(world: Simulation, peer: Peer) -> None:
    """Tasks behind another one are watched, unless they have been asked back."""
    process = world.processes.get(peer.number)
    if process is None or not process.alive:
        return
    if any(type(message) is m.Recall for message in process.inbox):
        return
    on_the_way = {m.HandBack, m.Done, m.DoneMany}
    if any(type(message) in on_the_way for _, message, _ in process.outbox):
        return
    assert isinstance(process, Worker)
    behind = list(peer.tasks)[1:]
    unstarted = [run for run in process.queue if run.task in behind]
    unread = [x for x in process.inbox if type(x) is m.Run and x.task in behind]
    unread += [x for x in process.inbox if type(x) is m.RunMany and not behind.isdisjoint(x.tasks)]
    if unstarted or unread:
        raise Violation(f"worker {peer.number} has tasks behind another one that nobody will ask back")


def handle_death(world: Simulation, message: m.WorkerGone) -> None:
    """Only what a dead worker had begun may count as a retry, and only what it began last may fail."""
    machine = world.machine
    peer = machine.peers.get(message.number)
    process = world.processes.get(message.number)
    before = dict(peer.tasks) if peer is not None else {}
    retries = {id: task.retries_left for id, task in before.items()}
    runs = {id: run_id(id, task.attempt) for id, task in before.items()}
    arguments = {id: [argument for _, argument in task.dependencies] for id, task in before.items()}
    machine.handle(0, message, world.now)
    if peer is None or peer.actor is not None or not isinstance(process, Worker):
        return
    running = process.work.task if process.work is not None else b""
    for id, task in before.items():
        if id == running or task.cancelled or task.owner not in machine.peers:
            continue
        finished = runs[id] in process.finished
        if finished and runs[id] == process.last_begun:
            continue  # its result was lost with the worker
        if not world.freed.isdisjoint(arguments[id]):
            continue  # nobody can run it any more
        if machine.tasks.table.get(id) is not task:
            done = "finished" if finished else "not started"
            raise Violation(f"{world.name(id)} failed with worker {peer.number}, which had {done} it")
        if not finished and task.retries_left != retries[id]:
            raise Violation(
                f"{world.name(id)} lost a retry with worker {peer.number}, which had not started it"
            )


# ---------------------------------------------------------------- jobs


def _check_jobs(world: Simulation, machine: Machine) -> None:
    """Nothing is done for jobs that are over."""
    peers = machine.peers
    ended = {job for job, info in machine.job_info.items() if info["ended"]}
    if not ended:
        return
    tasks = [task for task in machine.tasks.table.values() if task.template.cls.job in ended]
    for task in tasks:
        if task.actor is not None and task.actor.options.detached:
            continue
        owner = peers.get(task.owner)
        if owner is not None and owner.killed == exits.JOB_ENDED:
            raise Violation(f"{world.name(task.id)} was submitted by a worker whose job is over")
    in_order = {peer.number for peer in machine.gone if peer.said_goodbye and peer.actor is None}
    for actor in machine.actors.table.values():
        if actor.owner in in_order:
            continue  # it lives as long as there are handles, which a detached actor may have
        if actor.state is not DEAD and not actor.options.detached and actor.owner not in peers:
            raise Violation(f"{world.name(actor.id)} is {actor.state}, but its owner is gone")
    left = {peer.job for peer in peers.values()} | {task.template.cls.job for task in tasks}
    for group in machine.groups.table.values():
        over = group.creator_job in ended and group.creator_job not in left
        if over and not group.detached and group.state != "REMOVED":
            raise Violation(f"a placement group is {group.state}, but its job is over")


# ---------------------------------------------------------------- resources


def _check_resources(world: Simulation, machine: Machine) -> None:
    """What is available and what is granted make the total; devices are not shared too often."""
    pools: dict[Pool, list[object]] = {machine.scheduler.pool: []}
    used: dict[int, dict[str, int]] = {id(machine.scheduler.pool): {}}
    devices: dict[int, dict[tuple[str, str], int]] = {id(machine.scheduler.pool): {}}
    for group in machine.groups.table.values():
        for pool in group.pools:
            pools[pool] = []
            used[id(pool)] = {}
            devices[id(pool)] = {}
    grants = [(peer.grant, peer) for peer in machine.peers.values() if peer.grant is not None]
    grants += [(grant, None) for group in machine.groups.table.values() for grant in group.grants]  # type: ignore[misc]
    over = False
    for grant, peer in grants:
        if grant.pool not in pools:
            continue  # of a removed group: its worker is about to be killed
        amounts = used[id(grant.pool)]
        shares = devices[id(grant.pool)]
        for name, amount in grant.amounts.items():
            if name == "CPU" and grant.lent:
                over = True
                if peer is None or not peer.blocked:
                    raise Violation("CPUs of a worker that is not blocked are lent")
                continue
            amounts[name] = amounts.get(name, 0) + amount
        for kind, parts in grant.devices.items():
            for device, share in parts:
                shares[kind, device] = shares.get((kind, device), 0) + share
    del over
    for pool in pools:
        amounts = used[id(pool)]
        for name, total in pool.total.items():
            if pool.available[name] + amounts.get(name, 0) != total:
                raise Violation(
                    f"{name}: {pool.available[name]} available and {amounts.get(name, 0)} granted of {total}"
                )
            if pool.available[name] < 0 and name != "CPU":
                raise Violation(f"{name} is granted more often than it exists")
        for (kind, device), share in devices[id(pool)].items():
            if share > UNIT or pool.devices[kind][device] != UNIT - share:
                raise Violation(f"{kind} {device} is granted {share / UNIT} times")


# ---------------------------------------------------------------- objects


def _check_objects(world: Simulation, machine: Machine) -> None:
    """Objects live exactly as long as something refers to them."""
    objects = machine.directory.objects
    expected: dict[bytes, int] = {}
    for task in machine.tasks.table.values():
        for _, id in task.dependencies:
            expected[id] = expected.get(id, 0) + 1
        for id in task.contains:
            expected[id] = expected.get(id, 0) + 1
        if task.args_object:
            expected[task.args_object] = expected.get(task.args_object, 0) + 1
    for obj in objects.values():
        for id in obj.contains:
            expected[id] = expected.get(id, 0) + 1
        if obj.state == PENDING and obj.wanting:
            expected[obj.id] = expected.get(obj.id, 0) + len(obj.wanting)
    for actor in machine.actors.table.values():
        if actor.options.detached and actor.state is not DEAD:
            expected[actor.handle] = expected.get(actor.handle, 0) + 1
    for id, count in expected.items():
        if id not in objects:
            raise Violation(f"{world.name(id)} was freed while {count} tasks or objects contain it")
    held: dict[int, int] = {}
    for id, obj in objects.items():
        if obj.internal != expected.get(id, 0):
            raise Violation(
                f"{world.name(id)} is inside {expected.get(id, 0)} tasks or objects, but {obj.internal} are counted"
            )
        if not obj.holders and not obj.internal:
            raise Violation(f"{world.name(id)} is kept though nothing refers to it")
        for number in obj.holders:
            held[number] = held.get(number, 0) + 1
            if number not in machine.peers or id not in machine.peers[number].holds:
                raise Violation(f"{world.name(id)} is held by {number}, which is gone or does not know")
    for peer in machine.peers.values():
        if len(peer.holds) != held.get(peer.number, 0):
            raise Violation(
                f"{peer.number} holds {len(peer.holds)} objects, {held.get(peer.number, 0)} agree"
            )


def _check_references(world: Simulation, machine: Machine) -> None:
    """No live process refers to an object that is gone, or that does not count it."""
    objects = machine.directory.objects
    for process in world.processes.values():
        if not process.alive:
            continue
        unsettled = process.unsettled
        own = handle(process.actor) if isinstance(process, Worker) else b""
        for id, reference in process.refs.items():
            if not reference.known or id in unsettled or id in process.unsure:
                continue
            obj = objects.get(id)
            if id == own and (obj is None or process.number not in obj.holders):
                continue  # its own handle does not keep an actor alive
            if obj is None:
                raise Violation(f"{world.name(id)} was freed while {process} refers to it")
            if process.number not in obj.holders:
                raise Violation(f"{process} refers to {world.name(id)}, but is not counted as a holder")
        pins = machine.peers[process.number].pins
        for id in process.mapped:
            if not pins.get(id):
                raise Violation(f"{process} maps {world.name(id)}, but that is not pinned")


# ---------------------------------------------------------------- shared memory


def _check_store(world: Simulation, machine: Machine) -> None:
    """The node's books of shared memory agree with the segments that exist."""
    store = machine.store
    if store._sizes != world.memory.sizes:
        raise Violation(f"segments {store._sizes} are in the books, {world.memory.sizes} exist")
    on_disk = sum(size for segment, size in store._sizes.items() if is_on_disk(segment))
    if store.disk_used != on_disk:
        raise Violation(f"{store.disk_used} bytes are said to be on disk, {on_disk} are")
    if store.used != sum(store._sizes.values()) - on_disk or store.used > store.budget:
        raise Violation(
            f"{store.used} bytes are said to be used of {store.budget}; {sum(store._sizes.values()) - on_disk} are"
        )
    places: dict[str, str] = {}

    def place(segment: str, where: str) -> None:
        if segment in places:
            raise Violation(f"segment {segment} is both {places[segment]} and {where}")
        if segment not in store._sizes:
            raise Violation(f"segment {segment} is {where}, but does not exist")
        places[segment] = where

    spare = 0
    for writer, segments in store._spare.items():
        for segment, size in segments.items():
            place(segment, f"spare for {writer}")
            spare += size
    if spare != store._spare_bytes:
        raise Violation(f"{store._spare_bytes} bytes are said to be spare, {spare} are")
    pins: dict[bytes, int] = {}
    for peer in machine.peers.values():
        for segment in peer.segments:
            place(segment, f"allocated by {peer.number}")
        for id, count in peer.pins.items():
            pins[id] = pins.get(id, 0) + count
    for id, segment in store._orphans.items():
        place(segment, f"orphan of {world.name(id)}")
    spilling = 0
    moving = {job.id: job for job in world.memory.jobs if not isinstance(job, m.DeleteSpilled)}
    for _, message, _ in world.host:
        if isinstance(message, m.Spilled | m.Restored):
            moving[message.id] = message
    for id, obj in machine.directory.objects.items():
        if obj.segment:
            place(obj.segment, f"object {world.name(id)}")
            if obj.state != SHARED and not obj.pinned:
                raise Violation(f"{world.name(id)} has a segment, but is in state {obj.state}")
        if obj.pinned != pins.get(id, 0):
            raise Violation(f"{world.name(id)} is pinned {obj.pinned} times, processes say {pins.get(id, 0)}")
        if obj.pinned and obj.state == SHARED and not obj.spilled and (obj.loading or not obj.segment):
            raise Violation(f"{world.name(id)} is pinned, but on its way to disk")
        if obj.state == SHARED and not obj.segment and not obj.spilled:
            raise Violation(f"{world.name(id)} is neither in memory nor on disk")
        if obj.loading and obj.segment:
            spilling += store._sizes[obj.segment]
        if obj.wanting and not obj.loading and obj.state != PENDING:
            raise Violation(f"{world.name(id)} is waited for, but nobody brings it")
        if obj.loading and id not in moving and id not in store._restoring.values():
            raise Violation(f"{world.name(id)} is said to be moved, but is not")
    for segment in store._orphans.values():
        spilling += store._sizes[segment]
    if spilling != store._spilling:
        raise Violation(f"{store._spilling} bytes are said to be on the way to disk, {spilling} are")
    for job in (*world.memory.jobs, *(message for _, message, _ in world.host)):
        if isinstance(job, m.Restore | m.Restored):
            place(job.segment, f"being filled with {world.name(job.id)}")
    if len(places) != len(store._sizes):
        raise Violation(f"segments {sorted(store._sizes.keys() - places.keys())} belong to nothing")


# ---------------------------------------------------------------- progress


def _check_nothing_forgotten(world: Simulation, machine: Machine) -> None:
    """What could go on now does."""
    scheduler = machine.scheduler
    for cls in scheduler.waiting:
        if scheduler._pool_for(cls) is None:
            continue
        key = cls.key
        refusal = scheduler.starts._refusals.get(key)
        refused = (
            refusal is not None and refusal.next is not None
        )  # by the system; the next attempt has its time
        if cls.queue[0].actor is not None and (scheduler.starts._starting.get(key) or refused):
            continue  # a worker with a handle of the actor does not become it; another is started
        if scheduler._idle.get(key):
            raise Violation("a task could run, but an idle worker is left alone")
        if not scheduler.starts._starting.get(key) and not refused:
            raise Violation("a task could run, but no worker is started")
    pool = scheduler.pool
    for group in machine.groups.pending:
        grants = []
        for request in group.requests:
            if not pool.fits(request):
                break
            grants.append(pool.take(request))
        fits = len(grants) == len(group.requests)
        for grant in grants:
            grant.give_back()
        if fits:
            raise Violation("a placement group could be reserved, but is not")
    store = machine.store
    if store._waiting and not store._spilling:
        source, _, need = store._waiting[0]
        if store.used + need <= store.budget:
            raise Violation(f"{source} waits for {need} bytes, which are there")
        for obj in store._resident.values():
            if not obj.pinned and not obj.loading and obj.segment:
                raise Violation(f"{source} waits for {need} bytes, and {world.name(obj.id)} could be spilled")
