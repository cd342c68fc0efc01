"""Placement groups: resources reserved in bundles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from skate._base.errors import RaySystemError
from skate._engine.common import failures, feasibility
from skate._engine.common.resources import Grant, Pool, Request, to_units


class Group:
    """A placement group; its pools exist once it is reserved."""

    def __init__(self, id: bytes, bundles: list[dict[str, float]], strategy: str) -> None:
        self.id = id
        self.bundles = bundles
        self.strategy = strategy
        self.requests = [to_units(bundle) for bundle in bundles]
        self.name = ""
        self.namespace = ""
        self.detached = False
        self.state = "PENDING"
        self.impossible = ""
        self.grants: list[Grant] = []
        self.pools: list[Pool] = []
        self.watchers: list[Callable[[], None]] = []  # called when it is reserved, or can never be
        self.waiting: set[bytes] = set()  # objects that become ready then


class Groups:
    """Reserves groups in the order of their creation, as soon as all bundles of one fit."""

    def __init__(self, pool: Pool, labels: Mapping[str, str], lock: threading.Lock) -> None:
        self._pool = pool
        self._lock = lock
        self._labels = labels
        self.table: dict[bytes, Group] = {}

    def create(self, group: Group, labels: list[dict[str, str]]) -> None:
        """Create a group, and reserve it now or later.

        Raises:
            RaySystemError: The name is taken.
        """
        if group.name and self.find(group.name, group.namespace) is not None:
            raise RaySystemError(failures.group_name_taken(group.name, group.namespace))
        group.impossible = feasibility.why_not_reserved(group, labels, self._labels, self._pool)
        if group.impossible:
            group.state = "INFEASIBLE"
        self.table[group.id] = group
        self.settle()

    def settle(self) -> None:
        """Reserve the pending groups that fit now."""
        for group in list(self.table.values()):
            with self._lock:
                reserved = group.state == "PENDING" and self._reserve(group)
            if reserved:
                self._notify(group)

    def _reserve(self, group: Group) -> bool:
        grants: list[Grant] = []
        for request in group.requests:
            if not self._pool.fits(request):
                for grant in grants:
                    grant.give_back()
                return False
            grants.append(self._pool.take(request))
        group.grants = grants
        group.pools = [Pool(grant.amounts, grant.device_ids()) for grant in grants]
        group.state = "CREATED"
        return True

    @staticmethod
    def _notify(group: Group) -> None:
        group.waiting.clear()
        watchers, group.watchers = group.watchers, []
        for watcher in watchers:
            watcher()

    def remove(self, id: bytes) -> bool:
        """Return a group's resources; return whether the group existed."""
        group = self.table.get(id)
        if group is None or group.state == "REMOVED":
            return False
        with self._lock:
            group.state = "REMOVED"
            # Tasks and actors in the group end with it, so the grants of the bundles are returned as a whole.
            for grant in group.grants:
                grant.give_back()
            group.grants = []
            group.pools = []
        self._notify(group)
        return True

    def pool_for(self, id: bytes, bundle: int, request: Request) -> Pool | None:
        """Return a bundle that the request fits into now."""
        group = self.table.get(id)
        if group is None or group.state != "CREATED":
            return None
        pools = group.pools if bundle < 0 else group.pools[bundle : bundle + 1]
        return next((pool for pool in pools if pool.fits(request)), None)

    def why_impossible(self, id: bytes, bundle: int, request: Request) -> str:
        """Return why a request can never run in the group; empty when it can."""
        return feasibility.why_not_in_group(self.table.get(id), bundle, request)

    def find(self, name: str, namespace: str) -> Group | None:
        """Return the live group with this name."""
        for group in self.table.values():
            if group.name == name and group.namespace == namespace and group.state != "REMOVED":
                return group
        return None

    def rows(self, job: bytes) -> list[dict[str, Any]]:
        """Return the rows for the state API."""
        return [
            {
                "placement_group_id": group.id,
                "name": group.name,
                "namespace": group.namespace,
                "bundles": group.bundles,
                "strategy": group.strategy,
                "state": group.state,
                "creator_job_id": job,
                "is_detached": group.detached,
                "impossible": group.impossible,
            }
            for group in list(self.table.values())
        ]
