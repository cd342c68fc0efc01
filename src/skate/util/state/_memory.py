"""The memory of a session: which process holds which objects."""

from __future__ import annotations

from typing import Any

from skate._base.creation_sites import read_sites
from skate._engine.abc import Engine, Table, View
from skate.util.state._attachment import attach, dashboard_at
from skate.util.state.exception import InvalidQueryError

__all__ = ["memory", "memory_of", "process_titles"]

DEFAULT_LIMIT = 1000


def memory(address: str | None = None, limit: int = DEFAULT_LIMIT) -> dict[str, Any]:
    """Return the memory that each process of the session uses and holds, and the largest objects.

    Not in Ray.

    Args:
        address: Address of the node; see `list_actors`.
        limit: The most objects to return.

    Returns:
        A dictionary with the bytes of the object store: `budget`, `used`, `spilled`, and `mapped` by processes.
        `processes` has the memory of each process (`rss`, `uss`), the number and the bytes of the objects that it
        refers to (`objects`, `bytes`), and the bytes that it maps (`mapped`). `objects` has the largest objects with
        their holders, and in programs that run with `SKATE_record_ref_creation_sites=1` the line that created each
        (`created_at`).

    Raises:
        InvalidQueryError: The engine does not know who holds its objects.

    >>> import skate
    >>> from skate.util.state import memory
    >>> context = skate.init(num_cpus=1)
    >>> kept = skate.put(bytes(1_000_000))
    >>> found = memory()
    >>> found["objects"][0]["holders"][0]["title"]
    'driver'
    >>> skate.shutdown()
    """
    http = dashboard_at(address)
    if http is not None:
        answer: dict[str, Any] = http.memory(limit)
        return answer
    with attach(address) as engine:
        found = memory_of(engine, limit)
    if found is None:
        raise InvalidQueryError(f"The {engine.name} engine does not know who holds its objects.")
    return found


def memory_of(engine: Engine, limit: int) -> dict[str, Any] | None:
    """Return the same for an engine; None if it does not know."""
    answer = engine.observe(View.MEMORY_BY_PROCESS, limit)
    if answer is None:
        return None
    store = engine.object_store()
    processes = process_titles(engine)
    sites = read_sites(engine.context().session, [each["object_id"] for each in answer["objects"]])
    return {
        "budget": store["budget"],
        "used": store["used"],
        "spilled": store["spilled_bytes"],
        "mapped": answer["mapped"],
        "total": answer["total"],
        "processes": [
            _process(processes[number], *sums) for number, *sums in answer["processes"] if number in processes
        ],
        "objects": [_object(each, processes, sites) for each in answer["objects"]],
    }


def process_titles(engine: Engine) -> dict[int, dict[str, Any]]:
    """Return the processes of the session by number, with a title."""
    actors = {row["worker_id"]: row for row in engine.state(Table.ACTORS) if row["worker_id"]}
    found = {row["worker_id"]: row for row in engine.state(Table.WORKERS)}
    for number, row in found.items():
        row["title"] = _title(row, actors.get(number))
    return found


def _title(process: dict[str, Any], actor: dict[str, Any] | None) -> str:
    if process["worker_type"] == "DRIVER":
        return "driver"
    if actor is not None:
        name = f" {actor['name']}" if actor["name"] else ""
        return f"actor {actor['class_name']}{name}"
    return "worker"


def _process(row: dict[str, Any], objects: int, size: int, mapped: int) -> dict[str, Any]:
    import psutil  # imported here, because few programs need it

    rss = uss = None
    try:
        used = psutil.Process(row["pid"]).memory_full_info()
        rss, uss = used.rss, used.uss
    except psutil.Error:
        pass  # it has ended, or runs in another container
    return {
        "pid": row["pid"],
        "title": row["title"],
        "rss": rss,
        "uss": uss,
        "objects": objects,
        "bytes": size,
        "mapped": mapped,
    }


def _object(
    each: dict[str, Any], processes: dict[int, dict[str, Any]], sites: dict[bytes, str]
) -> dict[str, Any]:
    holders = [(number, "LOCAL_REFERENCE") for number in each["holders"]]
    holders += [(number, "MAPPED") for number in each["mapped_by"]]
    if each["held_by_tasks"]:  # arguments of unfinished tasks, or references inside of other objects
        holders.append((each["owner"], "USED_BY_PENDING_TASK"))
    return {
        "id": each["object_id"].hex(),
        "size": each["size"],
        "state": each["state"],
        "owner_pid": processes.get(each["owner"], {}).get("pid"),
        "holders": [
            {"pid": processes[number]["pid"], "title": processes[number]["title"], "kind": kind}
            for number, kind in holders
            if number in processes
        ],
        "created_at": sites.get(each["object_id"]),
        "pinned": bool(each["pinned"]),
        "spilled": each["spilled"],
    }
