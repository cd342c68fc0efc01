"""The workers of an experiment, and the calls to them.

A worker is created when a trial needs one, and reused for trials with the same resources.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import skate
from skate.tune._loop.capacity import ClusterCapacity, session_capacity
from skate.tune._workers.messages import WorkerSettings
from skate.tune._workers.worker import TrialWorker
from skate.tune.execution.placement_groups import PlacementGroupFactory, TrainerResources
from skate.tune.experiment import Trial
from skate.util.placement_group import PlacementGroup, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

MAX_TRIALS = 2  # of one worker: one that runs, and one that waits for it
_STALLED_S = 15.0  # a worker of a cluster that takes longer to start lacks resources


@dataclass(eq=False)
class Worker:
    """A process that runs trials.

    Attributes:
        actor: The handle of the process.
        kind: The experiment whose trials it runs.
        resources: Its resources.
        group: Its placement group, if its resources have several bundles.
        trials: The number of trials that it runs, or that wait for it.
        is_fast: Whether its latest trial took little time and a single step, so that others may wait for it.
        last_end: When its latest trial ended.
    """

    actor: Any
    kind: int
    resources: PlacementGroupFactory
    group: PlacementGroup | None = None
    trials: int = 0
    is_fast: bool = False
    last_end: float = 0.0


class WorkerPool:
    """Creates workers as far as the resources of the session allow.

    Args:
        kinds: For each experiment, a reference to its trainable, and the settings that its workers share.
    """

    def __init__(self, kinds: Sequence[tuple[Any, WorkerSettings]]) -> None:
        self._kinds = kinds
        self._idle: dict[tuple[int, PlacementGroupFactory], list[Worker]] = {}
        self._live: dict[Worker, None] = {}
        self._capacity = session_capacity()
        self._starting: dict[
            Worker, tuple[Any, float]
        ] = {}  # of a cluster, with references that are ready once they run

    def acquire(
        self, resources: PlacementGroupFactory, kind: int = 0, *, force: bool = False
    ) -> Worker | None:
        """Return a worker with these resources; None if they are in use.

        Args:
            resources: The resources of a trial.
            kind: Its experiment.
            force: Whether to create a worker in any case, which waits for resources that other programs use.
        """
        idle = self._idle.get((kind, resources))
        if idle:
            worker = idle.pop()
        elif self._make_room(resources) or force:
            worker = self._create(kind, resources)
        else:
            return None
        worker.trials = 1
        return worker

    def queue(self, resources: PlacementGroupFactory, kind: int = 0) -> Worker | None:
        """Return the fast worker with these resources that has the fewest trials; None if all have enough."""
        fast = [
            worker
            for worker in self._live
            if worker.is_fast and worker.kind == kind and worker.resources == resources
        ]
        worker = min(fast, key=lambda worker: worker.trials, default=None)
        if worker is None or worker.trials >= MAX_TRIALS:
            return None
        worker.trials += 1
        return worker

    def release(self, worker: Worker) -> None:
        """Handle the end of a trial, whose worker is kept for the next one."""
        worker.trials -= 1
        if not worker.trials and worker in self._live:
            self._idle.setdefault((worker.kind, worker.resources), []).append(worker)

    def discard(self, worker: Worker) -> None:
        """End a worker."""
        if worker in self._live:
            del self._live[worker]
            self._capacity.give_back(worker.resources)
            skate.kill(worker.actor)
            if worker.group is not None:
                remove_placement_group(worker.group)

    def get_num_cpus(self) -> float:
        """Return the number of CPUs of the session."""
        return self._capacity.total.get("CPU", 0.0)

    def get_num_gpus(self) -> float:
        """Return the number of GPUs of the session."""
        return self._capacity.total.get("GPU", 0.0)

    def why_impossible(self, resources: PlacementGroupFactory) -> str:
        """Return why a session as large as this one can never run a trial with these resources; "" if it can."""
        return self._capacity.why_impossible(resources)

    def end_idle_if_stalled(self) -> None:
        """End idle workers if another worker has been waiting for resources, because no node has room for both."""
        if not self._starting:
            return
        for worker, (ready, _) in list(self._starting.items()):
            if worker not in self._live or skate.wait([ready], timeout=0, fetch_local=False)[0]:
                del self._starting[worker]
        if any(time.monotonic() - created > _STALLED_S for _, created in self._starting.values()):
            for worker in [worker for idle in self._idle.values() for worker in idle]:
                self.discard(worker)
            self._idle.clear()

    def clean_up(self, timeout: float) -> None:
        """Let idle workers clean up the trainables that they have kept for the next trial.

        Args:
            timeout: The seconds to wait.
        """
        cleanups = [worker.actor.clean_up.remote() for workers in self._idle.values() for worker in workers]
        if cleanups:
            skate.wait(cleanups, num_returns=len(cleanups), timeout=timeout)

    def close(self) -> None:
        """End all workers."""
        for worker in list(self._live):
            self.discard(worker)
        self._idle.clear()

    def _make_room(self, resources: PlacementGroupFactory) -> bool:
        """Return whether the resources are free, after ending idle workers with other resources."""
        while not self._capacity.has_room(resources):
            others = next((workers for workers in self._idle.values() if workers), None)
            if others is None:
                return False
            self.discard(others.pop())
        return True

    def _create(self, kind: int, resources: PlacementGroupFactory) -> Worker:
        self._capacity.take(resources)
        head = resources.head_bundle
        options: dict[str, Any] = {
            "num_cpus": head.pop("CPU", 0.0),
            "num_gpus": head.pop("GPU", 0.0),
            "resources": head,
        }
        if "memory" in head:
            options["memory"] = head.pop("memory")
        group = None
        needs_group = len(resources.bundles) > 1 or resources.head_bundle_is_empty
        if needs_group and not isinstance(resources, TrainerResources):
            group = resources.to_placement_group()
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group,
                placement_group_bundle_index=-1 if resources.head_bundle_is_empty else 0,
                placement_group_capture_child_tasks=True,
            )
        actor = skate.remote(TrialWorker).options(**options).remote(*self._kinds[kind], resources)
        worker = Worker(actor, kind, resources, group)
        self._live[worker] = None
        if isinstance(self._capacity, ClusterCapacity):
            self._starting[worker] = actor.__ray_ready__.remote(), time.monotonic()
        return worker


class CallKind(Enum):
    """The kind of a call."""

    STEP = "step"
    STOP = "stop"


@dataclass(eq=False)
class RunningTrial:
    """A trial on a worker.

    Attributes:
        trial: The trial.
        worker: The worker.
        started: When the trial was sent to the worker.
        steps: The number of steps that the trial has completed there.
    """

    trial: Trial
    worker: Worker
    started: float
    steps: int = 0


class Calls:
    """Calls to workers that have not returned, by reference, in the order in which they were made."""

    def __init__(self) -> None:
        self._calls: dict[Any, tuple[CallKind, RunningTrial]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, kind: CallKind, running: RunningTrial, reference: Any) -> None:
        """Add a call for a trial."""
        self._calls[reference] = (kind, running)

    def forget(self, running: RunningTrial) -> None:
        """Remove the calls for a trial."""
        for reference in [each for each, (_, owner) in self._calls.items() if owner is running]:
            del self._calls[reference]

    def has_step(self, running: RunningTrial) -> bool:
        """Return whether a trial is in a step."""
        return any(kind is CallKind.STEP and owner is running for kind, owner in self._calls.values())

    @property
    def stopping(self) -> int:
        """The number of trials that have been told to stop and have not stopped yet."""
        return sum(kind is CallKind.STOP for kind, _ in self._calls.values())

    def take_ready(self, timeout: float) -> Iterator[tuple[CallKind, RunningTrial, Any]]:
        """Wait for a call to return. Remove and yield all calls that have returned, with their references.

        Args:
            timeout: The time to wait, in seconds.
        """
        references = list(self._calls)
        ready, _ = skate.wait(references, num_returns=len(references), timeout=0)
        if not ready:
            ready, _ = skate.wait(references, num_returns=1, timeout=timeout)
        for reference in ready:
            found = self._calls.pop(reference, None)
            if found is not None:  # otherwise handling an earlier call has removed it
                yield *found, reference
