"""Queries of the state of a node: its tasks, actors, objects, workers, jobs and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import skate
from skate.util.state._attachment import attach, dashboard_at
from skate.util.state._client import StateApiClient, why
from skate.util.state._logs import log_files, log_folder, log_name, read_log
from skate.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    ActorState,
    Filter,
    GetApiOptions,
    JobState,
    ListApiOptions,
    NodeState,
    ObjectState,
    PlacementGroupState,
    RuntimeEnvState,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
    TaskState,
    WorkerState,
)

__all__ = [
    "StateApiClient",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
    "why",
]


def _list(
    resource: StateResource,
    address: str | None,
    filters: Sequence[Filter] | None,
    limit: int,
    timeout: float,
    detail: bool,
    raise_on_missing_output: bool,
    explain: bool,
) -> Any:
    options = ListApiOptions(limit=limit, timeout=timeout, detail=detail, filters=list(filters or []))
    return StateApiClient(address).list(resource, options, raise_on_missing_output, explain)


def list_actors(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ActorState]:
    """Return the actors, including dead ones.

    Args:
        address: Address of the node, or the URL of its dashboard with the token; None means the session of this
            process, else the node of `skate start`.
        filters: Triples of column, "=" or "!=", and value; a row must match all of them.
        limit: Maximum number of rows.
        timeout: Seconds to wait for a dashboard; the node itself replies immediately.
        detail: Whether to fill all columns.
        raise_on_missing_output: Whether incomplete output of a dashboard is an error; that of a node is complete.

    >>> import skate
    >>> from skate.util.state import list_actors
    >>> context = skate.init(num_cpus=1)
    >>> list_actors(filters=[("state", "=", "ALIVE")])
    []
    >>> skate.shutdown()
    """
    found: list[ActorState] = _list(
        StateResource.ACTORS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_placement_groups(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[PlacementGroupState]:
    """Return the placement groups. See `list_actors`."""
    found: list[PlacementGroupState] = _list(
        StateResource.PLACEMENT_GROUPS,
        address,
        filters,
        limit,
        timeout,
        detail,
        raise_on_missing_output,
        _explain,
    )
    return found


def list_nodes(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[NodeState]:
    """Return the nodes; on one machine there is one. See `list_actors`."""
    found: list[NodeState] = _list(
        StateResource.NODES, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_jobs(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[JobState]:
    """Return the programs that are or were attached to the node. See `list_actors`."""
    found: list[JobState] = _list(
        StateResource.JOBS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_workers(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[WorkerState]:
    """Return the drivers and workers, including ended ones. See `list_actors`."""
    found: list[WorkerState] = _list(
        StateResource.WORKERS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_tasks(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[TaskState]:
    """Return the tasks and actor calls: pending, running, and the latest finished ones. See `list_actors`."""
    found: list[TaskState] = _list(
        StateResource.TASKS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_objects(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ObjectState]:
    """Return the objects that the node knows, one row per process with a reference. See `list_actors`."""
    found: list[ObjectState] = _list(
        StateResource.OBJECTS, address, filters, limit, timeout, detail, raise_on_missing_output, _explain
    )
    return found


def list_runtime_envs(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[RuntimeEnvState]:
    """Return the runtime environments that workers use. See `list_actors`."""
    found: list[RuntimeEnvState] = _list(
        StateResource.RUNTIME_ENVS,
        address,
        filters,
        limit,
        timeout,
        detail,
        raise_on_missing_output,
        _explain,
    )
    return found


def list_cluster_events(
    address: str | None = None,
    filters: Sequence[Filter] | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[dict[str, Any]]:
    """Return an empty list: a node records no events besides its logs. See `list_logs`."""
    http = dashboard_at(address)
    if http is not None:
        found: list[dict[str, Any]] = http.events(timeout)
        return found
    with attach(address):
        return []


def _get(resource: StateResource, id: str, address: str | None, timeout: float) -> Any:
    return StateApiClient(address).get(resource, id, GetApiOptions(timeout=timeout))


def get_actor(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> ActorState | None:
    """Return the actor with this id, or None, with all columns."""
    found: ActorState | None = _get(StateResource.ACTORS, id, address, timeout)
    return found


def get_placement_group(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> PlacementGroupState | None:
    """Return the placement group with this id, or None, with all columns."""
    found: PlacementGroupState | None = _get(StateResource.PLACEMENT_GROUPS, id, address, timeout)
    return found


def get_node(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> NodeState | None:
    """Return the node with this id, or None, with all columns."""
    found: NodeState | None = _get(StateResource.NODES, id, address, timeout)
    return found


def get_worker(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> WorkerState | None:
    """Return the driver or worker with this id, or None, with all columns."""
    found: WorkerState | None = _get(StateResource.WORKERS, id, address, timeout)
    return found


def get_job(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> JobState | None:
    """Return the job with this id, which may be one that `submit_job` returned, or None, with all columns."""
    found: JobState | None = _get(StateResource.JOBS, id, address, timeout)
    return found


def get_objects(
    id: str, address: str | None = None, timeout: float = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> list[ObjectState]:
    """Return the rows of the object with this id, with all columns."""
    found: list[ObjectState] = _get(StateResource.OBJECTS, id, address, timeout)
    return found


def get_task(
    id: str | skate.ObjectRef[Any],
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    _explain: bool = False,
) -> TaskState | list[TaskState] | None:
    """Return the task with this id, or the task that creates the object of this reference, with all columns.

    For a task with several attempts, return a list with one row per attempt.
    """
    text = id.task_id().hex() if isinstance(id, skate.ObjectRef) else id
    found: TaskState | list[TaskState] | None = _get(StateResource.TASKS, text, address, timeout)
    return found


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
) -> dict[str, list[str]]:
    """Return the names of the session's logs by kind: logs of workers, and of the node itself.

    Args:
        address: Address of the node; see `list_actors`.
        node_id: On a cluster, the id of the node; otherwise accepted as in Ray.
        node_ip: On a cluster, the address of the node.
        glob_filter: Pattern that names must match, such as `worker-1*`.
        timeout: Accepted as in Ray.
    """
    http = dashboard_at(address)
    if http is not None:
        listed: dict[str, list[str]] = http.logs(timeout, node_id=node_id, node_ip=node_ip, glob=glob_filter)
        return listed
    with attach(address) as engine:
        native = engine.native_state
        if native is not None:  # the logs of a cluster are on many machines
            return native.list_logs(
                node_id=node_id, node_ip=node_ip, glob_filter=glob_filter, timeout=timeout
            )
        return log_files(engine, glob_filter or "*")


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    suffix: str = "out",
    encoding: str | None = "utf-8",
    errors: str | None = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[str]:
    """Yield the text of one log, selected by one of the arguments.

    Args:
        address: Address of the node; see `list_actors`.
        node_id: On a cluster, the id of the node; otherwise accepted as in Ray.
        node_ip: On a cluster, the address of the node.
        filename: A name from `list_logs`.
        actor_id: Id of the actor whose process writes the log.
        task_id: Id of the task whose worker wrote the log, which also holds output of other tasks.
        pid: Process id of the worker.
        follow: Whether to wait for more output, until the session ends.
        tail: Number of last lines to start with; all by default.
        timeout: Accepted as in Ray.
        suffix: Accepted as in Ray; standard output and standard error share one file.
        encoding: Encoding of the log; None yields bytes.
        errors: How to treat bytes that cannot be decoded, as in `bytes.decode`.
        submission_id: Id of the job whose driver wrote the log.
        attempt_number: Accepted as in Ray; the last attempt is shown.
        filter_ansi_code: Whether to remove ANSI color codes.

    Raises:
        InvalidQueryError: The log does not exist.
    """
    http = dashboard_at(address)
    if http is not None:
        yield from http.log(
            follow=follow,
            tail=tail,
            timeout=timeout,
            encoding=encoding,
            errors=errors or "strict",
            node_id=node_id,
            node_ip=node_ip,
            filename=filename,
            actor_id=actor_id,
            task_id=task_id,
            pid=pid,
            submission_id=submission_id,
            suffix=suffix,
            attempt_number=attempt_number,
            interval=_interval,
            filter_ansi_code=filter_ansi_code,
        )
        return
    with attach(address) as engine:
        native = engine.native_state
        if native is not None:
            yield from native.get_log(
                node_id=node_id,
                node_ip=node_ip,
                filename=filename,
                actor_id=actor_id,
                task_id=task_id,
                pid=pid,
                follow=follow,
                tail=tail,
                timeout=timeout,
                suffix=suffix,
                encoding=encoding,
                errors=errors,
                submission_id=submission_id,
                attempt_number=attempt_number,
                filter_ansi_code=filter_ansi_code,
            )
            return
        folder = log_folder(engine)
        name = log_name(
            engine, filename=filename, actor=actor_id, task=task_id, pid=pid, submission=submission_id
        )
    yield from read_log(
        folder,
        name,
        tail=tail,
        follow=follow,
        interval=_interval,
        encoding=encoding,
        errors=errors or "strict",
        plain=filter_ansi_code,
    )


def _summarize(resource: SummaryResource, address: str | None, timeout: float) -> dict[str, Any]:
    return StateApiClient(address).summary(resource, options=SummaryApiOptions(timeout=timeout))


def summarize_tasks(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Return the number of tasks by name and state, under the key "cluster"."""
    return _summarize(SummaryResource.TASKS, address, timeout)


def summarize_actors(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Return the number of actors by class and state, under the key "cluster"."""
    return _summarize(SummaryResource.ACTORS, address, timeout)


def summarize_objects(
    address: str | None = None,
    timeout: float = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Return the number and size of objects, under the key "cluster"."""
    return _summarize(SummaryResource.OBJECTS, address, timeout)
