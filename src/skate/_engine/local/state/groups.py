"""Placement groups: resources reserved in bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base.object_ref import ERROR, INLINE
from skate._engine.common import failures, feasibility
from skate._engine.common.resources import Pool, Request, to_units
from skate._engine.common.states import RUNNING
from skate._engine.local.state import exits
from skate._engine.local.state.records import HOST, Group
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


class Groups:
    """Reserves groups in the order of their creation, as soon as all bundles of one fit."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.table: dict[bytes, Group] = {}
        self.pending: list[Group] = []

    def create(self, source: int, message: m.CreateGroup) -> None:
        """Create a group and reserve it now or later; refuse a name that is taken."""
        machine = self._machine
        if message.name and self.find(message.name, message.namespace) is not None:
            taken = failures.group_name_taken(message.name, message.namespace)
            machine.refuse(source, message.request, failures.as_error(taken))
            return
        group = Group(message.group, message.bundles, message.strategy, machine.peers[source].job)
        group.created = machine.now
        group.name = message.name
        group.namespace = message.namespace
        group.detached = message.detached
        group.requests = [to_units(bundle) for bundle in message.bundles]
        group.impossible = feasibility.why_not_reserved(
            group, message.labels, machine.labels, machine.scheduler.pool
        )
        self.table[group.id] = group
        machine.answer(source, message.request, {"impossible": group.impossible})
        if group.impossible:
            group.state = "INFEASIBLE"
        else:
            self.pending.append(group)
            machine.scheduler.groups_wait = True
            self.settle()

    def settle(self) -> None:
        """Reserve the pending groups that fit now."""
        if not self.pending:
            return
        pool = self._machine.scheduler.pool
        for group in list(self.pending):
            grants = []
            for request in group.requests:
                if not pool.fits(request):
                    break
                grants.append(pool.take(request))
            if len(grants) < len(group.requests):
                for grant in grants:
                    grant.give_back()
                continue
            self.pending.remove(group)
            self._machine.scheduler.groups_wait = bool(self.pending)
            group.grants = grants
            group.pools = [Pool(grant.amounts, grant.device_ids()) for grant in grants]
            group.state = "CREATED"
            for id, data in group.watchers:
                self._fulfil(id, m.Result(INLINE, data))
            group.watchers = []
            self._machine.scheduler.resources_changed()

    def _fulfil(self, id: bytes, result: m.Result) -> None:
        obj = self._machine.directory.objects.get(id)
        if obj is not None:
            self._machine.directory.fulfil(obj, result, HOST)

    def watch(self, source: int, message: m.WatchGroup) -> None:
        """Make an object ready once the group is reserved."""
        self._machine.directory.declare(message.id, source)
        group = self.table.get(message.group)
        if group is None or group.state == "REMOVED":
            self._fulfil(message.id, m.Result(ERROR, failures.group_removed(actor=False)))
        elif group.impossible:
            error = failures.unschedulable("The placement group", group.impossible)
            self._fulfil(message.id, m.Result(ERROR, error))
        elif group.state == "CREATED":
            self._fulfil(message.id, m.Result(INLINE, message.data))
        else:
            group.watchers.append((message.id, message.data))

    def remove(self, id: bytes) -> None:
        """End the tasks and actors in the group, and return its resources."""
        group = self.table.get(id)
        if group is None or group.state == "REMOVED":
            return
        machine = self._machine
        created = group.state == "CREATED"
        group.state = "REMOVED"
        if group in self.pending:
            self.pending.remove(group)
            machine.scheduler.groups_wait = bool(self.pending)
        machine.actors.group_gone(id)
        removed = failures.group_removed(actor=False)
        machine.scheduler.group_gone(id, self.why_impossible(id, -1, {}))
        for task in list(machine.tasks.table.values()):
            if task.template.spec.group == id and task.actor is None and task.id in machine.tasks.table:
                if task.state is RUNNING and task.worker is not None:
                    worker = task.worker
                    worker.tasks.pop(task.id, None)
                    machine.kill(worker, exits.GROUP_REMOVED)
                machine.tasks.fail(task, removed)
        for watcher, _ in group.watchers:
            self._fulfil(watcher, m.Result(ERROR, removed))
        if created:
            # The grants of the bundles are returned as a whole; grants of killed workers belong to the bundles' pools,
            # which are no longer used.
            for grant in group.grants:
                grant.give_back()
        group.grants = []
        group.pools = []
        machine.scheduler.resources_changed()

    def job_gone(self, job: bytes) -> None:
        """Remove the non-detached groups of an ended job."""
        for group in list(self.table.values()):
            if group.creator_job == job and not group.detached:
                self.remove(group.id)

    def pool_for(self, id: bytes, bundle: int, request: Request) -> Pool | None:
        """Return a bundle that the request fits into now."""
        group = self.table.get(id)
        if group is None or group.state != "CREATED":
            return None
        pools = group.pools if bundle < 0 else group.pools[bundle : bundle + 1]
        for pool in pools:
            if pool.fits(request):
                return pool
        return None

    def why_impossible(self, id: bytes, bundle: int, request: Request) -> str:
        """Say why a request can never run in the group; empty when it can."""
        return feasibility.why_not_in_group(self.table.get(id), bundle, request)

    def find(self, name: str, namespace: str) -> Group | None:
        """Return the live group with this name."""
        for group in self.table.values():
            if group.name == name and group.namespace == namespace and group.state != "REMOVED":
                return group
        return None
