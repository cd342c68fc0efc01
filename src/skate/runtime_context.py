"""Where a piece of code runs: job, task, actor, node, resources."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import skate._engine as engines
from skate._base.accelerators import DEVICE_VARIABLES
from skate._base.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID
from skate._base.lazy_names import lazy_names
from skate._engine.common.names import function_name

__all__ = ["RuntimeContext", "get_runtime_context"]


if TYPE_CHECKING:
    from skate._base.runtime_envs.runtime_env import RuntimeEnv as RuntimeEnv
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "RuntimeEnv": "skate._base.runtime_envs.runtime_env.RuntimeEnv",
        },
    )


class RuntimeContext:
    """Facts about the process and the task that asks."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self._engine.context()
        return facts

    def get(self) -> dict[str, Any]:
        """Return the facts as a dictionary of ids."""
        warnings.warn(
            "Use get_xxx_id() methods to get relevant ids instead", DeprecationWarning, stacklevel=2
        )
        found: dict[str, Any] = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        if self.get_task_id() is not None and self._facts["task"] is not None:
            found["task_id"] = TaskID(self._facts["task"].task)
        if self._facts["actor"] is not None:
            found["actor_id"] = ActorID(self._facts["actor"][0])
        return found

    @property
    def job_id(self) -> JobID:
        """The job, as an id."""
        warnings.warn("Use get_job_id() instead", DeprecationWarning, stacklevel=2)
        return JobID(self._facts["job"])

    def get_job_id(self) -> str:
        """Return the job's id in hexadecimal."""
        return str(self._facts["job"].hex())

    @property
    def node_id(self) -> NodeID:
        """The node, as an id."""
        warnings.warn("Use get_node_id() instead", DeprecationWarning, stacklevel=2)
        return NodeID(self._facts["node"])

    def get_node_id(self) -> str:
        """Return the node's id in hexadecimal."""
        return str(self._facts["node"].hex())

    def get_worker_id(self) -> str:
        """Return the id of this process in hexadecimal."""
        return worker_id(self._facts["worker"])

    @property
    def worker(self) -> Any:
        """This process as Ray's internals describe it: its mode, its ids."""
        from skate._api.ray_internals._private.worker import global_worker

        return global_worker

    def get_session_name(self) -> str:
        """Return the name of the session."""
        return os.path.basename(str(self._facts["session"]))

    def get_session_dir(self) -> str:
        """Return the session's folder."""
        return str(self._facts["session"])

    def get_temp_dir(self) -> str:
        """Return the folder that holds the sessions."""
        return os.path.dirname(str(self._facts["session"]))

    @property
    def task_id(self) -> TaskID:
        """The running task, as an id."""
        warnings.warn("Use get_task_id() instead", DeprecationWarning, stacklevel=2)
        task = self._facts["task"]
        assert task is not None, "task_id is only available in a task"
        return TaskID(task.task)

    def get_task_id(self) -> str | None:
        """Return the running task's id in hexadecimal; None on the driver."""
        task = self._facts["task"]
        return None if task is None else str(task.task.hex())

    def get_task_name(self) -> str | None:
        """Return the running task's name; None on the driver."""
        task = self._facts["task"]
        return None if task is None else str(task.name)

    def get_task_function_name(self) -> str | None:
        """Return module and name of the running function; None on the driver.

        What encloses the function or class (`make.<locals>.`) is part of the name in asyncio actors alone, as in Ray.
        """
        facts = self._facts
        known = getattr(facts["task"], "function_name", None)  # where the engine itself has the name
        return function_name(facts) if known is None else str(known)

    @property
    def actor_id(self) -> ActorID:
        """The actor, as an id."""
        warnings.warn("Use get_actor_id() instead", DeprecationWarning, stacklevel=2)
        actor = self._facts["actor"]
        assert actor is not None, "actor_id is only available in an actor"
        return ActorID(actor[0])

    def get_actor_id(self) -> str | None:
        """Return the actor's id in hexadecimal; None outside of actors."""
        actor = self._facts["actor"]
        return None if actor is None else str(actor[0].hex())

    def get_actor_name(self) -> str | None:
        """Return the actor's name, "" if it has none; None outside of actors."""
        actor = self._facts["actor"]
        if actor is None:
            return None
        return str(self._engine.actor_name())

    @property
    def namespace(self) -> str:
        """The namespace of this job."""
        return str(self._facts["namespace"])

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor was restarted."""
        assert self._facts["actor"] is not None, "was_current_actor_reconstructed is only for actors"
        return getattr(self._engine, "restarts", 0) > 0

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        """The placement group of the running task, as an id."""
        warnings.warn("Use get_placement_group_id() instead", DeprecationWarning, stacklevel=2)
        group = self._engine.current_placement_group()
        return PlacementGroupID.nil() if group is None else PlacementGroupID(group)

    def get_placement_group_id(self) -> str | None:
        """Return the id of the placement group that the task runs in, in hexadecimal."""
        group = self._engine.current_placement_group()
        return None if group is None else str(group.hex())

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks submitted here run in the same placement group."""
        task = self._facts["task"]
        return bool(task is not None and task.template is not None and task.template.capture_children)

    def get_assigned_resources(self) -> dict[str, float]:
        """Return the resources of the running task or actor."""
        task = self._facts["task"]
        if task is None or task.template is None:
            return {}
        return dict(task.template.resources)

    def get_runtime_env_string(self) -> str:
        """Return the runtime environment as JSON."""
        import json

        return json.dumps(self._facts["environment"] or {}, sort_keys=True, default=str)

    @property
    def runtime_env(self) -> Any:
        """The runtime environment of this process."""
        from skate._base.runtime_envs.runtime_env import RuntimeEnv

        environment = self._facts["environment"] or {}
        return environment if isinstance(environment, RuntimeEnv) else RuntimeEnv(**environment)

    @property
    def current_actor(self) -> Any:
        """A handle to the actor that asks; it does not keep the actor alive."""
        from skate.actor import ActorHandle

        actor = self._facts["actor"]
        if actor is None:
            raise RuntimeError("This method is only available in an actor.")
        return ActorHandle(actor[0], None, *self._engine.own_methods())

    @property
    def gcs_address(self) -> str:
        """The address that other drivers attach to."""
        return str(self._facts["session"])

    def get_node_labels(self) -> dict[str, str]:
        """Return the labels of the node."""
        return dict(self._facts["labels"])

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Return the accelerators that this task or actor may use, by kind."""
        task = self._facts["task"]
        given = (
            (task.resources if task is not None else None)
            or getattr(self._engine, "accelerators", None)
            or {}
        )
        return {kind: list(given.get(kind, [])) for kind in DEVICE_VARIABLES}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Ray's old name of `get_accelerator_ids`."""
        warnings.warn("Use get_accelerator_ids() instead", DeprecationWarning, stacklevel=2)
        return self.get_accelerator_ids()

    def is_canceled(self) -> bool:
        """Tell whether the running task has been cancelled, so that it can stop by itself."""
        task = self._facts["task"]
        if task is None:
            raise RuntimeError("This method is only available in a task.")
        if self._facts["is_async_actor"]:
            raise RuntimeError(
                "This method is not supported in an async actor. Its calls get asyncio.CancelledError."
            )
        return bool(task.cancelled)


def worker_id(number: int) -> str:
    """Return a worker's id, as hexadecimal digits, from its number in the session."""
    return WorkerID(number.to_bytes(28, "big")).hex()


def get_runtime_context() -> RuntimeContext:
    """Return facts about where this code runs."""
    return RuntimeContext(engines.current())
