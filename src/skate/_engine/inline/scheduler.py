"""The scheduler of the inline engine: tasks and actors run now, later, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from skate._engine.common import feasibility
from skate._engine.common.resources import Grant, Pool, to_floats, to_units
from skate._engine.inline.context import Spec, current
from skate._engine.inline.groups import Groups
from skate._engine.inline.progress import Progress

Begin = Callable[[Grant], None]


class Scheduler:
    """Counts the resources of the node; waiting tasks and actors get them in order."""

    def __init__(
        self,
        progress: Progress,
        node: bytes,
        total: Mapping[str, float],
        devices: Mapping[str, list[str]],
        labels: Mapping[str, str],
    ) -> None:
        self._progress = progress
        self._node = node
        self.labels = labels
        self.pool = Pool(to_units(total), devices)
        self.groups = Groups(self.pool, labels, progress.lock)
        self.waiting: dict[bytes, tuple[Spec, Begin]] = {}

    @property
    def total(self) -> dict[str, float]:
        """All resources of the node."""
        return to_floats(self.pool.total)

    @property
    def available(self) -> dict[str, float]:
        """The free resources."""
        return {name: amount for name, amount in to_floats(self.pool.available).items() if amount > 0}

    def why_impossible(self, spec: Spec) -> str:
        """Return why a request can never be met; empty when it can."""
        why = feasibility.why_not_on_node(spec, self._node, self.labels)
        if why:
            return why
        request = to_units(spec.resources)
        if spec.group:
            return self.groups.why_impossible(spec.group, spec.bundle, request)
        return feasibility.why_not_in_pool(spec, request, self.pool)

    def take(self, spec: Spec) -> Grant | None:
        """Return the resources for a request; None while they are in use."""
        request = to_units(spec.resources)
        with self._progress.lock:
            pool: Pool | None = self.pool
            if spec.group:
                pool = self.groups.pool_for(spec.group, spec.bundle, request)
            if pool is None or not pool.fits(request):
                return None
            return pool.take(request)

    def wait(self, id: bytes, spec: Spec, begin: Begin) -> None:
        """Call `begin` with the resources once they are free."""
        self.waiting[id] = (spec, begin)

    def forget(self, id: bytes) -> None:
        """Remove a waiting request."""
        self.waiting.pop(id, None)

    def give(self, grant: Grant) -> None:
        """Return resources, and give them to waiting requests."""
        with self._progress.lock:
            grant.give_back()
        self.retry()

    def retry(self) -> None:
        """Reserve groups and start waiting requests that fit now."""
        self.groups.settle()
        for id, (spec, begin) in list(self.waiting.items()):
            grant = self.take(spec)
            if grant is None:
                continue
            if self.waiting.pop(id, None) is None:  # another thread was first
                self.give(grant)
            else:
                self._progress.add(lambda begin=begin, grant=grant: begin(grant))  # type: ignore[misc]

    @contextmanager
    def lend_cpus(self) -> Iterator[None]:
        """Lend the CPUs of the calling task or actor to others, for the length of a `with` block."""
        running = current.get()
        grant = None if running is None else running.grant
        if grant is None or grant.lent:
            yield
            return
        with self._progress.lock:
            grant.lend_cpus()
        try:
            yield
        finally:
            with self._progress.lock:
                grant.regain_cpus()
