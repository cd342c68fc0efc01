"""The engine's context, read from Ray's runtime context."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skate._base.alias import real_ray
from skate._engine.abc import ActorIdentity, EngineContext, RunningTask

if TYPE_CHECKING:
    from skate._engine.ray.engine import RayEngine


class RayContext(EngineContext):
    """Reads each field at its first use: some take a request to the cluster, which Ray Client does not support."""

    def __init__(self, engine: RayEngine) -> None:
        self.__dict__["_engine"] = engine  # the dataclass is frozen
        self.__dict__["_theirs"] = real_ray().get_runtime_context()

    _engine: RayEngine
    _theirs: Any

    @cached_property
    def worker(self) -> int:
        """The number of this process."""
        return int(self._theirs.get_worker_id(), 16)

    @cached_property
    def job(self) -> bytes:
        """The id of the job."""
        return bytes.fromhex(self._theirs.get_job_id())

    @cached_property
    def node(self) -> bytes:
        """The id of the node."""
        return bytes.fromhex(self._theirs.get_node_id())

    @cached_property
    def session(self) -> str:
        """The session's folder; the cluster's address if the folder is on another machine."""
        if self._engine.over_client:
            return str(self._engine.address)
        return os.path.join(str(self._theirs.get_temp_dir()), str(self._theirs.get_session_name()))

    @cached_property
    def namespace(self) -> str:
        """The namespace of the job."""
        return str(self._theirs.namespace)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        node = self._theirs.get_node_id()
        return next((dict(row["Labels"]) for row in self._engine.nodes() if row["NodeID"] == node), {})

    @cached_property
    def task(self) -> RunningTask | None:
        """The running task or actor call."""
        theirs = self._theirs
        task = theirs.get_task_id() if self._engine.is_worker else None
        if task is None:
            return None
        return RunningTask(
            bytes.fromhex(task),
            theirs.get_task_name() or "",
            "",
            "",
            theirs.get_assigned_resources(),
            bool(theirs.should_capture_child_tasks_in_placement_group),
        )

    @property
    def function_name(self) -> str | None:
        """Module and name of the running function or method; None outside of tasks."""
        return None if self.task is None else str(self._theirs.get_task_function_name() or "")

    @cached_property
    def actor(self) -> ActorIdentity | None:
        """The actor of this process."""
        actor = self._theirs.get_actor_id() if self._engine.is_worker else None
        if actor is None:
            return None
        own = self._engine.own_actor
        if own is None:
            return ActorIdentity(bytes.fromhex(actor), "", False)
        is_async = any(method.is_async for method in own.methods.values())
        return ActorIdentity(bytes.fromhex(actor), own.class_name, is_async)

    @cached_property
    def accelerators(self) -> Mapping[str, list[str]]:
        """The devices of the running task or actor, by kind."""
        found: dict[str, list[str]] = {} if self.task is None else self._theirs.get_accelerator_ids()
        return found

    @cached_property
    def runtime_env(self) -> Mapping[str, Any]:
        """The runtime environment of this process."""
        return dict(self._theirs.runtime_env or {})
