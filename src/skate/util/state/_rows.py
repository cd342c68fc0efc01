"""Conversion of the engine's tables to the rows of the state API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from skate._base.creation_sites import read_sites
from skate._base.object_ref import ERROR, PENDING
from skate._engine.abc import Engine, Table
from skate.runtime_context import worker_id
from skate.util.node import LOOPBACK
from skate.util.state._schema import StateSchema
from skate.util.state.common import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    RuntimeEnvState,
    StateResource,
    TaskState,
    WorkerState,
)

NO_CALL_SITE = "disabled"  # Ray's value if call sites are not recorded


def rows(engine: Engine, resource: StateResource) -> list[StateSchema]:
    """Return all rows of a table, with details, in the order in which things were made."""
    native = engine.native_state
    if native is None:
        return _TABLES[resource](engine)
    # Rows of Ray: newer versions may have columns that Skate's tables do not have.
    schema = _SCHEMAS[resource]
    columns = schema.columns()
    return [
        schema(**{name: value for name, value in row.items() if name in columns})
        for row in native.rows(resource.value)
    ]


def schema_of(resource: StateResource) -> type[StateSchema]:
    """Return the class of the rows of a table."""
    return _SCHEMAS[resource]


def clear_details(row: StateSchema) -> StateSchema:
    """Clear the columns of a row that only `detail=True` fills, and return the row."""
    for column in row._fields():
        if column.metadata.get("detail"):
            setattr(row, column.name, column.default)
    return row


def _node(engine: Engine) -> str:
    return engine.context().node.hex()


def _hex(id: bytes) -> str | None:
    return id.hex() if id else None


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _actors(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    table = engine.state(Table.ACTORS)
    sites = read_sites(engine.context().session, [row["actor_id"] for row in table])
    return [
        ActorState(
            actor_id=row["actor_id"].hex(),
            class_name=row["class_name"],
            state=row["state"],
            job_id=row["job_id"].hex(),
            name=row["name"],
            node_id=node if row["pid"] else None,
            pid=row["pid"],
            ray_namespace=row["namespace"],
            serialized_runtime_env=row.get("runtime_env") or "{}",
            required_resources=row["required_resources"],
            death_cause=_death_cause(row),
            is_detached=row["is_detached"],
            placement_group_id=_hex(row["placement_group_id"]),
            repr_name=row["repr_name"],
            num_restarts=row["num_restarts"],
            call_site=sites.get(row["actor_id"]),
            label_selector=row.get("label_selector") or {},
        )
        for row in table
    ]


def _death_cause(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["state"] != "DEAD":
        return None
    about = {"error_message": row["death_cause"], "class_name": row["class_name"], "pid": row["pid"]}
    return {"actor_died_error_context": {**about, "actor_id": row["actor_id"].hex(), "name": row["name"]}}


def _tasks(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    # The latest attempt of a task comes before the earlier ones.
    found = sorted(
        engine.state(Table.TASKS), key=lambda row: (row["created"], row["task_id"], -row["attempt_number"])
    )
    sites = read_sites(engine.context().session, [row["task_id"] for row in found])
    return [task_state(row, node, sites.get(row["task_id"])) for row in found]


def task_state(row: dict[str, Any], node: str, site: str | None = None) -> TaskState:
    """Return the row of the state API for a row of the engine."""
    return TaskState(
        task_id=row["task_id"].hex(),
        attempt_number=row["attempt_number"],
        name=row["name"],
        state=row["state"],
        job_id=row["job_id"].hex(),
        actor_id=_hex(row["actor_id"]),
        type=row["type"],
        func_or_class_name=row["func_or_class_name"],
        parent_task_id=row["parent_task_id"].hex(),
        node_id=node if row["worker_id"] else None,
        worker_id=worker_id(row["worker_id"]) if row["worker_id"] else None,
        worker_pid=row["worker_pid"] or None,
        error_type=row["error_type"],
        error_message=row.get("error_message"),
        language="PYTHON",
        required_resources=row["required_resources"],
        runtime_env_info=_environment(row.get("runtime_env", "")),
        placement_group_id=_hex(row.get("placement_group_id", b"")),
        events=_events(row),
        creation_time_ms=_milliseconds(row["created"]),
        start_time_ms=_milliseconds(row["started"]) or None,
        end_time_ms=_milliseconds(row["ended"]) or None,
        is_debugger_paused=False,
        call_site=site,
        label_selector=row.get("label_selector") or {},
    )


def _events(row: dict[str, Any]) -> list[dict[str, Any]]:
    times = [
        ("PENDING_ARGS_AVAIL", row["created"]),
        ("RUNNING", row["started"]),
        (row["state"], row["ended"]),
    ]
    return [{"state": state, "created_ms": _milliseconds(when)} for state, when in times if when]


def _environment(text: str) -> dict[str, Any] | None:
    return json.loads(text).get("env") if text else None


def _objects(engine: Engine) -> list[StateSchema]:
    processes = {row["worker_id"]: row for row in engine.state(Table.WORKERS)}
    tasks: dict[bytes, dict[str, Any]] | None = None
    found: list[StateSchema] = []
    objects = engine.state(Table.OBJECTS)
    sites = read_sites(engine.context().session, [row["object_id"] for row in objects])
    for row in objects:
        status, attempt = "FINISHED", 0
        if row["state"] == ERROR:
            status = "FAILED"
        elif row["state"] == PENDING:
            if tasks is None:
                tasks = {task["task_id"]: task for task in engine.state(Table.TASKS)}
            task = tasks.get(row["object_id"][:-4])
            status, attempt = (task["state"], task["attempt_number"]) if task else ("NIL", 0)
        size = row["object_size"] if row["state"] != PENDING else -1
        site = sites.get(row["object_id"], NO_CALL_SITE)
        found += holder_rows(row, size, processes, site, status, attempt)
    return found


def holder_rows(
    row: Mapping[str, Any],
    size: int,
    processes: Mapping[int, Mapping[str, Any]],
    site: str,
    status: str,
    attempt: int = 0,
) -> list[ObjectState]:
    """Return a row for each process that holds an object. An object that only tasks hold is shown with its owner.

    Args:
        row: The state of the object on the node.
        size: Its size; -1 if it does not exist yet.
        processes: The processes by their numbers.
        site: The line that created it.
        status: The status of the task that creates it.
        attempt: The number of that task's attempt.
    """
    found = []
    for holder in row["holders"] or [row["owner"]]:
        process = processes.get(holder, {})
        if row["held_by_tasks"] and holder in (row["owner"], 0):
            kind = "USED_BY_PENDING_TASK"
        elif holder in row["holders"]:
            kind = "LOCAL_REFERENCE"
        else:
            kind = "PINNED_IN_MEMORY" if row["pinned"] else "UNKNOWN_STATUS"
        found.append(
            ObjectState(
                object_id=row["object_id"].hex(),
                object_size=size,
                task_status=status,
                attempt_number=attempt,
                reference_type=kind,
                call_site=site,
                type=process.get("worker_type", "WORKER"),
                pid=process.get("pid", 0),
                ip=LOOPBACK,
            )
        )
    return found


def _nodes(engine: Engine) -> list[StateSchema]:
    return [
        NodeState(
            node_id=row["NodeID"],
            node_ip=row["NodeManagerAddress"],
            is_head_node=True,
            state="ALIVE" if row["Alive"] else "DEAD",
            state_message=row["DeathReasonMessage"] or None,
            node_name=row["NodeName"],
            resources_total=row["Resources"],
            labels=row["Labels"],
            start_time_ms=row.get("StartTimeMs"),
            end_time_ms=0,
        )
        for row in engine.nodes()
    ]


def _workers(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    found = sorted(engine.state(Table.WORKERS), key=lambda row: int(row["worker_id"]))
    return [
        WorkerState(
            worker_id=worker_id(row["worker_id"]),
            is_alive=row["is_alive"],
            worker_type=row["worker_type"],
            exit_type=row["exit_type"],
            node_id=node,
            ip=LOOPBACK,
            pid=row["pid"],
            exit_detail=None if row["is_alive"] else row["exit_detail"] or None,
            worker_launch_time_ms=_milliseconds(row["start_time"]),
            worker_launched_time_ms=_milliseconds(row["start_time"]),
            start_time_ms=_milliseconds(row["start_time"]),
            end_time_ms=_milliseconds(row.get("end_time", 0.0)),
            num_paused_threads=0,
        )
        for row in found
    ]


def _jobs(engine: Engine) -> list[StateSchema]:
    return [*_submitted_jobs(engine), *_drivers(engine)]


def _submitted_jobs(engine: Engine) -> list[StateSchema]:
    from skate.job_submission._storage import JobStore

    store = JobStore(engine.context().session)
    jobs = [(id, store.read(id)) for id in store.ids()]
    return [
        JobState(
            submission_id=id,
            type="SUBMISSION",
            status=job.status,
            entrypoint=job.entrypoint,
            message=job.message,
            error_type=job.error_type,
            start_time=job.start_time,
            end_time=job.end_time,
            metadata=job.metadata,
            runtime_env=job.runtime_env,
            driver_node_id=job.driver_node_id,
            driver_exit_code=job.driver_exit_code,
        )
        for id, job in jobs
        if job is not None
    ]


def _drivers(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    return [
        JobState(
            job_id=row["job_id"].hex(),
            submission_id=(row["metadata"] or {}).get("job_submission_id"),
            type="DRIVER",
            status="SUCCEEDED" if row["ended"] else "RUNNING",
            entrypoint=row["entrypoint"],
            driver_info={"id": row["job_id"].hex(), "node_ip_address": LOOPBACK, "pid": str(row["pid"])},
            start_time=_milliseconds(row["started"]),
            end_time=_milliseconds(row["ended"]),
            metadata=row["metadata"] or {},
            runtime_env=row.get("runtime_env") or {},
            driver_node_id=node,
        )
        for row in engine.state(Table.JOBS)
    ]


def _groups(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    return [
        PlacementGroupState(
            placement_group_id=row["placement_group_id"].hex(),
            name=row["name"],
            creator_job_id=row["creator_job_id"].hex(),
            state="PENDING" if row["state"] == "INFEASIBLE" else row["state"],
            bundles=[
                {
                    "bundle_id": {
                        "placement_group_id": row["placement_group_id"].hex(),
                        "bundle_index": index,
                    },
                    "unit_resources": bundle,
                    "node_id": node if row["state"] == "CREATED" else None,
                }
                for index, bundle in enumerate(row["bundles"])
            ],
            is_detached=row["is_detached"],
            stats={"scheduling_state": "INFEASIBLE" if row["impossible"] else row["state"]},
        )
        for row in engine.state(Table.GROUPS)
    ]


def _environments(engine: Engine) -> list[StateSchema]:
    node = _node(engine)
    return [
        RuntimeEnvState(
            runtime_env=_environment(row["runtime_env"]) or {},
            success=not row.get("error"),
            creation_time_ms=row.get("creation_time_ms"),
            node_id=node,
            ref_cnt=row["ref_cnt"],
            error=row.get("error") or None,
        )
        for row in engine.state(Table.RUNTIME_ENVS)
    ]


_TABLES: dict[StateResource, Callable[[Any], list[StateSchema]]] = {
    StateResource.ACTORS: _actors,
    StateResource.TASKS: _tasks,
    StateResource.OBJECTS: _objects,
    StateResource.NODES: _nodes,
    StateResource.WORKERS: _workers,
    StateResource.JOBS: _jobs,
    StateResource.PLACEMENT_GROUPS: _groups,
    StateResource.RUNTIME_ENVS: _environments,
}
_SCHEMAS: dict[StateResource, type[StateSchema]] = {
    StateResource.ACTORS: ActorState,
    StateResource.TASKS: TaskState,
    StateResource.OBJECTS: ObjectState,
    StateResource.NODES: NodeState,
    StateResource.WORKERS: WorkerState,
    StateResource.JOBS: JobState,
    StateResource.PLACEMENT_GROUPS: PlacementGroupState,
    StateResource.RUNTIME_ENVS: RuntimeEnvState,
}
