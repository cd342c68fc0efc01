"""The workers of one attempt: actors that start together, have ranks, and end together."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

import skate
from skate.exceptions import GetTimeoutError
from skate.train._config.shared import ScalingConfig
from skate.train._failures.errors import ControllerError, TrainingFailedError
from skate.train._workers.actor import Whereabouts, Worker
from skate.train._workers.sessions import Assignment, Place
from skate.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

log = logging.getLogger(__name__)

_ONE_THREAD = "skate._base.one_thread"  # for workers with one CPU: has to be imported before torch

# Of one worker: the training function, the stream of its messages, answers, and what a backend does meanwhile.
_CALLS_AT_ONCE = 8
_DYING = 10.0  # seconds that a killed process may take to end
_LEAVING = 5.0  # seconds that a process may take which ends by itself


@dataclass(frozen=True)
class Member:
    """One worker.

    Attributes:
        actor: Its handle.
        whereabouts: Where it runs.
        place: Its ranks.
    """

    actor: Any
    whereabouts: Whereabouts
    place: Place

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its process can be seen from here."""
        return self.whereabouts.node_id == skate.get_runtime_context().get_node_id()

    @property
    def process_status(self) -> str | None:
        """What its process does, in a word of psutil's; None if it cannot be seen from here."""
        if not self.is_on_this_machine:
            return None
        try:
            return str(psutil.Process(self.whereabouts.pid).status())
        except psutil.NoSuchProcess:
            return "gone"

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until its process is gone, if that can be seen from here; tell whether it may be."""
        if not self.is_on_this_machine or self.whereabouts.pid == os.getpid():
            return True
        return _ends(self.whereabouts.pid, max(0.0, timeout))

    @property
    def shown(self) -> str:
        """The worker as messages name it."""
        return (
            f"rank {self.place.world_rank} (pid {self.whereabouts.pid} on {self.whereabouts.hostname}, "
            f"{self.whereabouts.node_ip})"
        )


class WorkerGroup:
    """Workers that train together.

    Args:
        scaling: What each of them has.
        size: How many there are.
        runtime_env: Their environment.
        preload: Modules that all of them need.
        patience: Seconds to wait for their resources.

    Raises:
        TrainingFailedError: There are not enough resources; says what is asked, and what there is.
    """

    def __init__(
        self,
        scaling: ScalingConfig,
        size: int,
        runtime_env: Mapping[str, Any] | None,
        preload: Sequence[str],
        patience: float,
    ) -> None:
        self._group = _placed(scaling, size, patience)
        wanted = dict(runtime_env or {})
        threads = [_ONE_THREAD] if scaling.bundle.get("CPU", 1) <= 1 else []
        environment = {**wanted, "preload": [*threads, __name__, *preload, *(wanted.get("preload") or ())]}
        try:
            self.members = _ranked(_started(scaling, size, self._group, environment))
        except BaseException:
            self.end()
            raise

    @property
    def is_here(self) -> bool:
        """Whether the workers are no processes of their own, but in this one."""
        return any(member.whereabouts.pid == os.getpid() for member in self.members)

    # ------------------------------------------------------------ what backends use

    def __len__(self) -> int:
        return len(self.members)

    @property
    def workers(self) -> list[Member]:
        """The workers, by rank."""
        return self.members

    def get_workers(self) -> list[Member]:
        """Return the workers, by rank."""
        return self.members

    def execute_async(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function on each worker; return references to what comes of it."""
        return [member.actor.execute.remote(func, *args, **kwargs) for member in self.members]

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function on each worker; return what comes of it, by rank."""
        found: list[Any] = skate.get(self.execute_async(func, *args, **kwargs))
        return found

    def execute_single_async(
        self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function on one worker; return a reference to what comes of it."""
        return self.members[worker_index].actor.execute.remote(func, *args, **kwargs)

    def execute_single(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on one worker; return what comes of it."""
        return skate.get(self.execute_single_async(worker_index, func, *args, **kwargs))

    # ------------------------------------------------------------ training

    def assign(self, assignments: Sequence[Assignment], environments: Sequence[Mapping[str, str]]) -> None:
        """Tell each worker what it has to know before it trains."""
        skate.get(
            [
                member.actor.assign.remote(assignment, environment)
                for member, assignment, environment in zip(
                    self.members, assignments, environments, strict=True
                )
            ]
        )

    def train(self, function: Any) -> tuple[list[Any], list[Any]]:
        """Start the training function everywhere; return the streams of messages, and references to the calls.

        Args:
            function: A reference to it and to what it runs in.
        """
        streams = [member.actor.messages.options(num_returns="streaming").remote() for member in self.members]
        calls = [member.actor.run.remote([function]) for member in self.members]
        return streams, calls

    def rank_of(self, error: Exception) -> int:
        """Return which worker an error comes from.

        Raises:
            ControllerError: It is from none of them.
        """
        for member in self.members:
            found = getattr(error, "actor_id", None), getattr(error, "pid", None)
            if member.actor._actor_id.hex() == found[0] or member.whereabouts.pid == found[1]:
                return member.place.world_rank
        raise ControllerError(error) from error

    def end(self, done: Collection[int] = ()) -> None:
        """End the workers, whatever they are doing.

        Args:
            done: The ranks that do nothing any more. They end like programs, so that calls and tasks that they have
                started go on, and what libraries do at exit is done: others are torn away.
        """
        members = getattr(self, "members", ())
        leaving = [member for member in members if member.place.world_rank in done]
        left = [member.actor.__ray_terminate__.remote() for member in leaving]
        for member in members:
            if member.place.world_rank not in done:
                skate.kill(member.actor)
        if left:
            self._wait_for(leaving, left)
        remove_placement_group(self._group)
        # What they were storing is deleted next: none may be alive to add to it.
        for member in members:
            member.wait_for_end(_DYING)

    def _wait_for(self, leaving: Sequence[Member], left: list[Any]) -> None:
        """Give workers that end by themselves some time to do so."""
        deadline = time.monotonic() + _LEAVING
        _, late = skate.wait(left, num_returns=len(left), timeout=_LEAVING)
        for member, end in zip(leaving, left, strict=True):
            if end in late or not member.wait_for_end(deadline - time.monotonic()):
                log.warning(
                    "%s does not end within %g s of its training function: it is killed",
                    member.shown,
                    _LEAVING,
                )
                skate.kill(member.actor)


def _placed(scaling: ScalingConfig, size: int, patience: float) -> PlacementGroup:
    """Reserve what all workers need, so that no group starts by halves."""
    asked = f"{size} workers with {_shown(scaling.bundle)} each"
    try:
        group = placement_group(
            [scaling.bundle or {"CPU": 0.001}] * size, strategy=scaling.placement_strategy
        )
        skate.get(group.ready(), timeout=patience)
    except GetTimeoutError:
        remove_placement_group(group)
        raise TrainingFailedError(
            f"{asked} could not be placed within {patience:g} s: there is {_shown(skate.cluster_resources())} in all, "
            f"and {_shown(skate.available_resources())} free now. Ask for fewer or smaller workers in ScalingConfig, "
            "or wait until others have ended"
        ) from None
    except (ValueError, skate.exceptions.RayError) as error:
        reason = str(error).removesuffix(".")
        raise TrainingFailedError(
            f"{asked} cannot be placed: {reason}. There is {_shown(skate.cluster_resources())} in all: ask for fewer "
            "or smaller workers in ScalingConfig"
        ) from error
    return group


def _started(
    scaling: ScalingConfig, size: int, group: PlacementGroup, runtime_env: Mapping[str, Any]
) -> list[tuple[Any, Whereabouts]]:
    resources = {name: amount for name, amount in scaling.bundle.items() if name not in ("CPU", "GPU")}
    options: dict[str, Any] = {
        "num_cpus": scaling.bundle.get("CPU", 0),
        "num_gpus": scaling.bundle.get("GPU", 0),
        "resources": resources,
        "max_concurrency": _CALLS_AT_ONCE,
        "max_restarts": 0,
        "max_task_retries": 0,
        "runtime_env": dict(runtime_env),
    }
    actors = [
        skate.remote(Worker)
        .options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index), **options)
        .remote()
        for index in range(size)
    ]
    return list(zip(actors, skate.get([actor.whereabouts.remote() for actor in actors]), strict=True))


def _ranked(started: list[tuple[Any, Whereabouts]]) -> list[Member]:
    """Give ranks: workers of one node stand together, in the order of their GPUs."""
    nodes = list(dict.fromkeys(where.node_id for _, where in started))
    ordered = sorted(started, key=lambda each: (nodes.index(each[1].node_id), each[1].gpu_ids))
    members: list[Member] = []
    for rank, (actor, where) in enumerate(ordered):
        same = [each for _, each in ordered if each.node_id == where.node_id]
        place = Place(rank, len(ordered), same.index(where), len(same), nodes.index(where.node_id))
        members.append(Member(actor, where, place))
    return members


def _ends(pid: int, timeout: float) -> bool:
    """Wait for a process, which is not a child of this one; tell whether it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))
    finally:
        os.close(descriptor)


def _shown(resources: Mapping[str, float]) -> str:
    plain = {name: amount for name, amount in resources.items() if not name.startswith(("node:", "memory"))}
    return (
        ", ".join(f"{amount:g} {name}" for name, amount in plain.items() if "memory" not in name) or "nothing"
    )
