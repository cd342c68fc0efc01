"""The worker group of one attempt: actors that start together, have ranks, and end together."""

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
from skate.air.config import ScalingConfig
from skate.exceptions import GetTimeoutError
from skate.train._failures.errors import ControllerError, TrainingFailedError
from skate.train._workers.actor import Worker, WorkerLocation
from skate.train._workers.sessions import Assignment, Ranks
from skate.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

log = logging.getLogger(__name__)

_ONE_THREAD = "skate._base.one_thread"  # for workers with one CPU; must be imported before torch

# For the training function, the stream of its messages, replies, probes, and the calls of a backend.
_MAX_CONCURRENCY = 8
_KILL_TIMEOUT_S = 10.0  # for a killed process to end
_EXIT_TIMEOUT_S = 5.0  # for a process that exits by itself


@dataclass(frozen=True)
class Member:
    """One worker.

    Attributes:
        actor: Its actor handle.
        location: Where it runs.
        ranks: Its ranks.
    """

    actor: Any
    location: WorkerLocation
    ranks: Ranks

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its process runs on this machine."""
        return self.location.node_id == skate.get_runtime_context().get_node_id()

    @property
    def process_status(self) -> str | None:
        """The status of its process, as psutil names it; None on another machine."""
        if not self.is_on_this_machine:
            return None
        try:
            return str(psutil.Process(self.location.pid).status())
        except psutil.NoSuchProcess:
            return "gone"

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until its process has ended; return False on a time-out, True also for another machine."""
        if not self.is_on_this_machine or self.location.pid == os.getpid():
            return True
        return _wait_for_process(self.location.pid, max(0.0, timeout))

    @property
    def description(self) -> str:
        """The worker's rank, process and host, for messages."""
        return (
            f"rank {self.ranks.world_rank} (pid {self.location.pid} on {self.location.hostname}, "
            f"{self.location.node_ip})"
        )


class WorkerGroup:
    """Workers that train together.

    Args:
        scaling: The resources of each worker.
        size: The number of workers.
        runtime_env: Their runtime environment.
        preload: Modules that all of them need.
        start_timeout: Seconds to wait for their resources.

    Raises:
        TrainingFailedError: The resources do not suffice; the error names the requested and the existing ones.
    """

    def __init__(
        self,
        scaling: ScalingConfig,
        size: int,
        runtime_env: Mapping[str, Any] | None,
        preload: Sequence[str],
        start_timeout: float,
    ) -> None:
        self._group = _reserve_placement(scaling, size, start_timeout)
        given = dict(runtime_env or {})
        threads = [_ONE_THREAD] if scaling.bundle.get("CPU", 1) <= 1 else []
        environment = {**given, "preload": [*threads, __name__, *preload, *(given.get("preload") or ())]}
        try:
            self.members = _assign_ranks(_start_actors(scaling, size, self._group, environment))
        except BaseException:
            self.shutdown()
            raise

    @property
    def is_in_process(self) -> bool:
        """Whether the engine runs the workers in this process."""
        return any(member.location.pid == os.getpid() for member in self.members)

    # ------------------------------------------------------------ for backends

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
        """Call a function on each worker; return references to the results."""
        return [member.actor.execute.remote(func, *args, **kwargs) for member in self.members]

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function on each worker; return the results, by rank."""
        found: list[Any] = skate.get(self.execute_async(func, *args, **kwargs))
        return found

    def execute_single_async(
        self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function on one worker; return a reference to the result."""
        return self.members[worker_index].actor.execute.remote(func, *args, **kwargs)

    def execute_single(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on one worker; return the result."""
        return skate.get(self.execute_single_async(worker_index, func, *args, **kwargs))

    # ------------------------------------------------------------ training

    def assign(self, assignments: Sequence[Assignment], environments: Sequence[Mapping[str, str]]) -> None:
        """Send each worker its assignment and its environment variables."""
        skate.get(
            [
                member.actor.assign.remote(assignment, environment)
                for member, assignment, environment in zip(
                    self.members, assignments, environments, strict=True
                )
            ]
        )

    def train(self, function: Any) -> tuple[list[Any], list[Any]]:
        """Start the training function on each worker; return the streams of messages, and references to the calls.

        Args:
            function: A reference to the training function and its context manager.
        """
        streams = [member.actor.messages.options(num_returns="streaming").remote() for member in self.members]
        calls = [member.actor.run.remote([function]) for member in self.members]
        return streams, calls

    def rank_of(self, error: Exception) -> int:
        """Return the rank of the worker that raised an error.

        Raises:
            ControllerError: No worker raised it.
        """
        for member in self.members:
            found = getattr(error, "actor_id", None), getattr(error, "pid", None)
            if member.actor._actor_id.hex() == found[0] or member.location.pid == found[1]:
                return member.ranks.world_rank
        raise ControllerError(error) from error

    def shutdown(self, done: Collection[int] = ()) -> None:
        """End the workers.

        Args:
            done: The ranks whose training function has ended. They exit like programs: tasks that they have started
                survive, and exit handlers run. The others are killed.
        """
        members = getattr(self, "members", ())
        exiting = [member for member in members if member.ranks.world_rank in done]
        exits = [member.actor.__ray_terminate__.remote() for member in exiting]
        for member in members:
            if member.ranks.world_rank not in done:
                skate.kill(member.actor)
        if exits:
            self._wait_for_exits(exiting, exits)
        remove_placement_group(self._group)
        # The controller deletes incomplete checkpoints next: no worker may be alive to write to them.
        for member in members:
            member.wait_for_end(_KILL_TIMEOUT_S)

    def _wait_for_exits(self, exiting: Sequence[Member], exits: list[Any]) -> None:
        """Wait for workers that exit by themselves, and kill those that do not."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        _, late = skate.wait(exits, num_returns=len(exits), timeout=_EXIT_TIMEOUT_S)
        for member, end in zip(exiting, exits, strict=True):
            if end in late or not member.wait_for_end(deadline - time.monotonic()):
                log.warning(
                    "%s did not exit within %g s after its training function: killing it",
                    member.description,
                    _EXIT_TIMEOUT_S,
                )
                skate.kill(member.actor)


def _reserve_placement(scaling: ScalingConfig, size: int, timeout: float) -> PlacementGroup:
    """Reserve the resources of all workers, so that a group never starts partially."""
    asked = f"{size} workers with {_format_resources(scaling.bundle)} each"
    try:
        group = placement_group(
            [scaling.bundle or {"CPU": 0.001}] * size, strategy=scaling.placement_strategy
        )
        skate.get(group.ready(), timeout=timeout)
    except GetTimeoutError:
        remove_placement_group(group)
        raise TrainingFailedError(
            f"{asked} could not be placed within {timeout:g} s: the node has "
            f"{_format_resources(skate.cluster_resources())} in total, of which "
            f"{_format_resources(skate.available_resources())} are free. Request fewer or smaller workers in "
            "ScalingConfig, or wait until other programs have ended"
        ) from None
    except (ValueError, skate.exceptions.RayError) as error:
        reason = str(error).removesuffix(".")
        raise TrainingFailedError(
            f"{asked} cannot be placed: {reason}. The node has {_format_resources(skate.cluster_resources())} in "
            "total: request fewer or smaller workers in ScalingConfig"
        ) from error
    return group


def _start_actors(
    scaling: ScalingConfig, size: int, group: PlacementGroup, runtime_env: Mapping[str, Any]
) -> list[tuple[Any, WorkerLocation]]:
    resources = {name: amount for name, amount in scaling.bundle.items() if name not in ("CPU", "GPU")}
    options: dict[str, Any] = {
        "num_cpus": scaling.bundle.get("CPU", 0),
        "num_gpus": scaling.bundle.get("GPU", 0),
        "resources": resources,
        "max_concurrency": _MAX_CONCURRENCY,
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
    return list(zip(actors, skate.get([actor.locate.remote() for actor in actors]), strict=True))


def _assign_ranks(started: list[tuple[Any, WorkerLocation]]) -> list[Member]:
    """Assign ranks: workers of one node get consecutive ones, in the order of their GPUs."""
    nodes = list(dict.fromkeys(where.node_id for _, where in started))
    ordered = sorted(started, key=lambda each: (nodes.index(each[1].node_id), each[1].gpu_ids))
    members: list[Member] = []
    for rank, (actor, where) in enumerate(ordered):
        same = [each for _, each in ordered if each.node_id == where.node_id]
        ranks = Ranks(rank, len(ordered), same.index(where), len(same), nodes.index(where.node_id))
        members.append(Member(actor, where, ranks))
    return members


def _wait_for_process(pid: int, timeout: float) -> bool:
    """Wait for a process that is not a child of this one; return whether it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except AttributeError:  # not Linux
        try:
            return not psutil.wait_procs([psutil.Process(pid)], timeout)[1]
        except psutil.NoSuchProcess:
            return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))
    finally:
        os.close(descriptor)


def _format_resources(resources: Mapping[str, float]) -> str:
    plain = {name: amount for name, amount in resources.items() if not name.startswith(("node:", "memory"))}
    return (
        ", ".join(f"{amount:g} {name}" for name, amount in plain.items() if "memory" not in name) or "nothing"
    )
