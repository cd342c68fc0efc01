"""The runtime context: job, task, actor, node and resources of the calling code."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import skate._engine as engines
from skate._base.accelerators import DEVICE_VARIABLES
from skate._base.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID
from skate._base.ids import worker_id as worker_id
from skate._base.lazy_names import lazy_names

__all__ = ["RuntimeContext", "get_runtime_context"]


if TYPE_CHECKING:
    from skate._base.runtime_envs.runtime_env import RuntimeEnv as RuntimeEnv
    from skate._engine.abc import Engine, EngineContext
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "RuntimeEnv": "skate._base.runtime_envs.runtime_env.RuntimeEnv",
        },
    )


class RuntimeContext:
    """Describes the process and the task that the calling code runs in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def _context(self) -> EngineContext:
        return self._engine.context()

    def get(self) -> dict[str, Any]:
        """Return the ids as a dictionary."""
        warnings.warn(
            "RuntimeContext.get() is deprecated: call get_job_id() and the like.",
            DeprecationWarning,
            stacklevel=2,
        )
        found: dict[str, Any] = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        context = self._context
        if context.task is not None:
            found["task_id"] = TaskID(context.task.id)
        if context.actor is not None:
            found["actor_id"] = ActorID(context.actor.id)
        return found

    @property
    def job_id(self) -> JobID:
        """The job, as an id."""
        warnings.warn("Use get_job_id() instead", DeprecationWarning, stacklevel=2)
        return JobID(self._context.job)

    def get_job_id(self) -> str:
        """Return the job's id in hexadecimal."""
        return self._context.job.hex()

    @property
    def node_id(self) -> NodeID:
        """The node, as an id."""
        warnings.warn("Use get_node_id() instead", DeprecationWarning, stacklevel=2)
        return NodeID(self._context.node)

    def get_node_id(self) -> str:
        """Return the node's id in hexadecimal."""
        return self._context.node.hex()

    def get_worker_id(self) -> str:
        """Return the id of this process in hexadecimal."""
        return worker_id(self._context.worker)

    @property
    def worker(self) -> Any:
        """This process as Ray's internals describe it: its mode and its ids."""
        from skate._api.ray_internals._private.worker import global_worker

        return global_worker

    def get_session_name(self) -> str:
        """Return the name of the session."""
        return os.path.basename(self._context.session)

    def get_session_dir(self) -> str:
        """Return the session's folder."""
        return self._context.session

    @property
    def dashboard_url(self) -> str:
        """The URL of a running dashboard of the session, with its token; "" if there is none.

        Not in Ray.
        """
        from skate._api import dashboards

        return dashboards.url_of(self._engine)

    def get_temp_dir(self) -> str:
        """Return the folder that holds the sessions."""
        return os.path.dirname(self._context.session)

    @property
    def task_id(self) -> TaskID:
        """The running task, as an id."""
        warnings.warn("Use get_task_id() instead", DeprecationWarning, stacklevel=2)
        task = self._context.task
        assert task is not None, "task_id is only available in a task"
        return TaskID(task.id)

    def get_task_id(self) -> str | None:
        """Return the running task's id in hexadecimal; None on the driver."""
        task = self._context.task
        return None if task is None else task.id.hex()

    def get_task_name(self) -> str | None:
        """Return the running task's name; None on the driver."""
        task = self._context.task
        return None if task is None else task.name

    def get_task_function_name(self) -> str | None:
        """Return module and name of the running function; None on the driver.

        The enclosing scopes (`make.<locals>.`) are part of the name in asyncio actors only, as in Ray.
        """
        return self._context.function_name

    @property
    def actor_id(self) -> ActorID:
        """The actor, as an id."""
        warnings.warn("Use get_actor_id() instead", DeprecationWarning, stacklevel=2)
        actor = self._context.actor
        assert actor is not None, "actor_id is only available in an actor"
        return ActorID(actor.id)

    def get_actor_id(self) -> str | None:
        """Return the actor's id in hexadecimal; None outside of actors."""
        actor = self._context.actor
        return None if actor is None else actor.id.hex()

    def get_actor_name(self) -> str | None:
        """Return the actor's name, "" if it has none; None outside of actors."""
        return None if self._context.actor is None else self._engine.actor_name()

    @property
    def namespace(self) -> str:
        """The namespace of this job."""
        return self._context.namespace

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor was restarted."""
        assert self._context.actor is not None, "was_current_actor_reconstructed is only for actors"
        return self._engine.actor_restarts() > 0

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        """The placement group of the running task, as an id."""
        warnings.warn("Use get_placement_group_id() instead", DeprecationWarning, stacklevel=2)
        group = self._engine.current_placement_group()
        return PlacementGroupID.nil() if group is None else PlacementGroupID(group)

    def get_placement_group_id(self) -> str | None:
        """Return the id of the placement group that the task runs in, in hexadecimal."""
        group = self._engine.current_placement_group()
        return None if group is None else group.hex()

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks submitted here run in the same placement group."""
        task = self._context.task
        return task is not None and task.captures_children

    def get_assigned_resources(self) -> dict[str, float]:
        """Return the resources of the running task or actor."""
        task = self._context.task
        return {} if task is None else dict(task.resources)

    def get_runtime_env_string(self) -> str:
        """Return the runtime environment as JSON."""
        import json

        return json.dumps(self._context.runtime_env or {}, sort_keys=True, default=str)

    @property
    def runtime_env(self) -> Any:
        """The runtime environment of this process."""
        from skate._base.runtime_envs.runtime_env import RuntimeEnv

        environment = self._context.runtime_env or {}
        return environment if isinstance(environment, RuntimeEnv) else RuntimeEnv(**environment)

    @property
    def current_actor(self) -> Any:
        """A handle of the calling actor; it does not keep the actor alive."""
        from skate.actor import make_handle

        actor = self._context.actor
        if actor is None:
            raise RuntimeError("current_actor is only known in an actor: this code runs outside of one.")
        return make_handle(actor.id, self._engine.describe_own_actor())

    @property
    def gcs_address(self) -> str:
        """The address that other drivers attach to."""
        return self._context.session

    def get_node_labels(self) -> dict[str, str]:
        """Return the labels of the node."""
        return dict(self._context.labels)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Return the accelerators that this task or actor may use, by kind."""
        given = self._context.accelerators
        return {kind: list(given.get(kind, [])) for kind in DEVICE_VARIABLES}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Ray's old name of `get_accelerator_ids`."""
        warnings.warn("Use get_accelerator_ids() instead", DeprecationWarning, stacklevel=2)
        return self.get_accelerator_ids()

    def is_canceled(self) -> bool:
        """Return whether the running task was cancelled, so that it can stop."""
        context = self._context
        if context.task is None:
            raise RuntimeError("is_canceled() only works in a task: this code runs outside of one.")
        if context.actor is not None and context.actor.is_async:
            raise RuntimeError(
                "This method is not supported in an async actor. Its calls get asyncio.CancelledError."
            )
        return self._engine.is_cancelled()


def get_runtime_context() -> RuntimeContext:
    """Return the context of the calling code."""
    return RuntimeContext(engines.current())
