"""The rows of the state API, under Ray's names, and the options of its queries."""

# ruff: noqa: RUF009 - state_column declares a field, as dataclasses.field does

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any

from skate.util.state._schema import Humanify, StateSchema, state_column

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_RPC_TIMEOUT",
    "RAY_MAX_LIMIT_FROM_API_SERVER",
    "ActorState",
    "Filter",
    "GetApiOptions",
    "Humanify",
    "JobState",
    "ListApiOptions",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "RuntimeEnvState",
    "StateResource",
    "StateSchema",
    "SummaryApiOptions",
    "SummaryResource",
    "TaskState",
    "WorkerState",
    "filter_fields",
    "state_column",
]

DEFAULT_LIMIT = 100
DEFAULT_RPC_TIMEOUT = 30
RAY_MAX_LIMIT_FROM_API_SERVER = 10_000

Filter = tuple[str, str, str | bool | int | float]


@unique
class StateResource(Enum):
    """Tables that can be listed."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"


@unique
class SummaryResource(Enum):
    """Tables that can be summarized."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


def filter_fields(data: dict[str, Any], state_dataclass: type[StateSchema], detail: bool) -> dict[str, Any]:
    """Return the columns of a row, in the order of its schema; columns that it does not have are None.

    Args:
        data: The row.
        state_dataclass: The schema, such as `TaskState`.
        detail: Whether to include the columns that are only shown with details.
    """
    return {name: data.get(name) for name in state_dataclass.list_columns(detail=detail)}


@dataclass
class ListApiOptions:
    """Options of a list query.

    `filters` are triples of column, "=" or "!=", and value; a row must match all of them.
    """

    limit: int = DEFAULT_LIMIT
    timeout: float = DEFAULT_RPC_TIMEOUT
    detail: bool = False
    filters: list[Filter] | None = field(default_factory=list)
    exclude_driver: bool = True

    def __post_init__(self) -> None:
        self.filters = list(self.filters or [])

    def has_conflicting_filters(self) -> bool:
        """Return whether two filters require different values of one column."""
        wanted: dict[str, Any] = {}
        equal = [(key, value) for key, operator, value in self.filters or [] if operator == "="]
        return any(wanted.setdefault(key, value) != value for key, value in equal)


@dataclass
class GetApiOptions:
    """Options of a query for one row."""

    timeout: float = DEFAULT_RPC_TIMEOUT


@dataclass
class SummaryApiOptions:
    """Options of a summary query."""

    timeout: float = DEFAULT_RPC_TIMEOUT
    filters: list[Filter] | None = field(default_factory=list)
    summary_by: str | None = None


@dataclass
class ActorState(StateSchema):
    """An actor."""

    actor_id: str = state_column(filterable=True)
    class_name: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    job_id: str = state_column(filterable=True)
    name: str | None = state_column(filterable=True)
    node_id: str | None = state_column(filterable=True)
    pid: int | None = state_column(filterable=True)
    ray_namespace: str | None = state_column(filterable=True)
    serialized_runtime_env: str | None = state_column(filterable=False, detail=True)
    required_resources: dict[str, float] | None = state_column(filterable=False, detail=True)
    death_cause: dict[str, Any] | None = state_column(filterable=False, detail=True)
    is_detached: bool | None = state_column(filterable=False, detail=True)
    placement_group_id: str | None = state_column(filterable=True, detail=True)
    repr_name: str | None = state_column(filterable=True, detail=True)
    num_restarts: int = state_column(filterable=False, detail=True, default=0)
    num_restarts_due_to_lineage_reconstruction: int = state_column(filterable=False, detail=True, default=0)
    num_restarts_due_to_node_preemption: int = state_column(filterable=False, detail=True, default=0)
    call_site: str | None = state_column(filterable=False, detail=True)
    label_selector: dict[str, str] | None = state_column(filterable=False, detail=True)
    fallback_strategy: dict[str, Any] | None = state_column(filterable=False, detail=True)


@dataclass
class TaskState(StateSchema):
    """One attempt of a task, an actor constructor or an actor method."""

    task_id: str = state_column(filterable=True)
    attempt_number: int = state_column(filterable=True)
    name: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    job_id: str = state_column(filterable=True)
    actor_id: str | None = state_column(filterable=True)
    type: str = state_column(filterable=True)
    func_or_class_name: str = state_column(filterable=True)
    parent_task_id: str = state_column(filterable=True)
    node_id: str | None = state_column(filterable=True)
    worker_id: str | None = state_column(filterable=True)
    worker_pid: int | None = state_column(filterable=True)
    error_type: str | None = state_column(filterable=True)
    language: str | None = state_column(filterable=True, detail=True)
    required_resources: dict[str, float] | None = state_column(filterable=False, detail=True)
    runtime_env_info: dict[str, Any] | None = state_column(filterable=False, detail=True)
    placement_group_id: str | None = state_column(filterable=True, detail=True)
    events: list[dict[str, Any]] | None = state_column(
        filterable=False, detail=True, format_fn=Humanify.events
    )
    profiling_data: dict[str, Any] | None = state_column(filterable=False, detail=True)
    creation_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    task_log_info: dict[str, Any] | None = state_column(filterable=False, detail=True)
    error_message: str | None = state_column(filterable=False, detail=True)
    is_debugger_paused: bool | None = state_column(filterable=True, detail=True)
    call_site: str | None = state_column(filterable=False, detail=True)
    label_selector: dict[str, str] | None = state_column(filterable=False, detail=True)
    fallback_strategy: dict[str, Any] | None = state_column(filterable=False, detail=True)


@dataclass
class ObjectState(StateSchema):
    """An object, as one process refers to it."""

    object_id: str = state_column(filterable=True)
    object_size: int = state_column(filterable=True, format_fn=Humanify.memory)
    task_status: str = state_column(filterable=True)
    attempt_number: int = state_column(filterable=True)
    reference_type: str = state_column(filterable=True)
    call_site: str = state_column(filterable=True)
    type: str = state_column(filterable=True)
    pid: int = state_column(filterable=True)
    ip: str = state_column(filterable=True)


@dataclass
class NodeState(StateSchema):
    """A node."""

    node_id: str = state_column(filterable=True)
    node_ip: str = state_column(filterable=True)
    is_head_node: bool = state_column(filterable=True)
    state: str = state_column(filterable=True)
    state_message: str | None = state_column(filterable=False)
    node_name: str = state_column(filterable=True)
    resources_total: dict[str, float] = state_column(filterable=False, format_fn=Humanify.node_resources)
    labels: dict[str, str] = state_column(filterable=False)
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)


@dataclass
class WorkerState(StateSchema):
    """A driver or worker process."""

    worker_id: str = state_column(filterable=True)
    is_alive: bool = state_column(filterable=True)
    worker_type: str = state_column(filterable=True)
    exit_type: str | None = state_column(filterable=True)
    node_id: str = state_column(filterable=True)
    ip: str = state_column(filterable=True)
    pid: int = state_column(filterable=True)
    exit_detail: str | None = state_column(filterable=False, detail=True)
    worker_launch_time_ms: int | None = state_column(
        filterable=False, detail=True, format_fn=Humanify.timestamp
    )
    worker_launched_time_ms: int | None = state_column(
        filterable=False, detail=True, format_fn=Humanify.timestamp
    )
    start_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    end_time_ms: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    debugger_port: int | None = state_column(filterable=True, detail=True)
    num_paused_threads: int | None = state_column(filterable=True, detail=True)


@dataclass
class JobState(StateSchema):
    """A program attached to the node, or submitted to it."""

    job_id: str | None = state_column(filterable=True, default=None)
    submission_id: str | None = state_column(filterable=True, default=None)
    type: str = state_column(filterable=True, default="DRIVER")
    status: str = state_column(filterable=True, default="PENDING")
    entrypoint: str = state_column(filterable=True, default="")
    message: str | None = state_column(filterable=True, default=None)
    error_type: str | None = state_column(filterable=True, default=None)
    driver_info: dict[str, Any] | None = state_column(filterable=False, default=None)
    start_time: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    end_time: int | None = state_column(filterable=False, detail=True, format_fn=Humanify.timestamp)
    metadata: dict[str, str] | None = state_column(filterable=False, detail=True)
    runtime_env: dict[str, Any] | None = state_column(filterable=False, detail=True)
    driver_agent_http_address: str | None = state_column(filterable=False, detail=True)
    driver_node_id: str | None = state_column(filterable=False, detail=True)
    driver_exit_code: int | None = state_column(filterable=False, detail=True)


@dataclass
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str = state_column(filterable=True)
    name: str = state_column(filterable=True)
    creator_job_id: str = state_column(filterable=True)
    state: str = state_column(filterable=True)
    bundles: list[dict[str, Any]] | None = state_column(filterable=False, detail=True)
    is_detached: bool | None = state_column(filterable=True, detail=True)
    stats: dict[str, Any] | None = state_column(filterable=False, detail=True)
    topology_strategy: dict[str, Any] | None = state_column(filterable=False, detail=True)
    topology_assignments: dict[str, Any] | None = state_column(filterable=False, detail=True)


@dataclass
class RuntimeEnvState(StateSchema):
    """A runtime environment that workers use."""

    runtime_env: dict[str, Any] = state_column(filterable=True)
    success: bool = state_column(filterable=True)
    creation_time_ms: float | None = state_column(filterable=False, format_fn=Humanify.duration)
    node_id: str = state_column(filterable=True)
    ref_cnt: int | None = state_column(filterable=False, detail=True)
    error: str | None = state_column(filterable=True, detail=True)
