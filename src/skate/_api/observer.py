"""A connection that reads the state of a node, for the dashboard."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import skate._engine as engines
from skate._api.actor_lookup import find_actor
from skate._base import memory as machine_memory
from skate._base.creation_sites import read_sites
from skate._base.ids import ACTOR_SIZE, GROUP_SIZE, OBJECT_SIZE, TASK_SIZE, object_id, worker_id
from skate._engine.abc import Table, View
from skate._version import __version__

if TYPE_CHECKING:
    from skate._engine.abc import Engine

__all__ = ["ActorLife", "MemoryUsage", "Observer", "attach", "memory_usage", "of_this_process"]

MOST_WAITING: Final = 100

memory_usage = machine_memory.usage
MemoryUsage = machine_memory.Usage


class ActorLife(NamedTuple):
    """When an actor was created and ended, and where it runs.

    Attributes:
        started: The time of its creation.
        ended: The time of its end; 0.0 if it lives.
        worker: The id of its worker.
    """

    started: float
    ended: float
    worker: str


class Observer:
    """Reads a node.

    Its methods block until the node answers, and raise NodeDiedError or RaySystemError once the node is gone. Any
    thread may call them.

    Args:
        engine: The connection.
        close: Ends the connection.
    """

    def __init__(self, engine: Engine, close: Callable[[], None]) -> None:
        self.engine = engine
        self._close = close
        context = engine.context()
        self.session = context.session
        self.node_id = context.node.hex()
        self._started = time.time()

    @property
    def is_local(self) -> bool:
        """Whether the node is one of Skate's, whose session folder is on this machine."""
        return self.engine.name == "local"

    def close(self) -> None:
        """End the connection."""
        self._close()

    def has_ended(self) -> bool:
        """Return whether a Ray cluster is gone, because Ray's errors do not say so; always False for a Skate node."""
        if self.is_local:
            return False
        from skate._engine.ray.connection import check_reachable

        try:
            check_reachable(self.session)
        except ConnectionError:
            return True
        return False

    def about(self) -> dict[str, Any]:
        """Return the facts that do not change while the node runs."""
        pid, started = None, None
        if self.is_local:
            from skate._engine.local.session.node_records import read_record

            record = read_record(self.session)
            pid, started = (None, self._started) if record is None else (record.pid or None, record.started)
        url = self.engine.address_info.get("webui_url") if self.engine.name == "ray" else None
        return {
            "engine": self.engine.name,
            "address": self.session,
            "pid": pid,
            "started": started,  # None for a Ray cluster: its nodes have started one by one
            "version": __version__,
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "namespace": self._namespace(),
            "ray_dashboard": f"http://{url}" if url else None,
        }

    def _namespace(self) -> str | None:
        """Return the namespace of the first driver, because the observer's own is random."""
        if not self.is_local:
            return None
        return next((row["namespace"] for row in self.engine.state(Table.JOBS)), None)

    # ------------------------------------------------------------ questions

    def summary(self) -> dict[str, Any] | None:
        """Return resources and counts; None if the engine does not count, see `count_rows`."""
        return self.engine.observe(View.SUMMARY)

    def count_rows(self) -> dict[str, Any]:
        """Return resources and counts from the tables of an engine that does not count. This takes longer."""
        from skate.util.state._rows import rows
        from skate.util.state.common import StateResource

        tasks, actors = rows(self.engine, StateResource.TASKS), rows(self.engine, StateResource.ACTORS)
        waiting = [row for row in tasks if str(row["state"]).startswith("PENDING_")]
        return {
            "total": self.engine.resources(),
            "available": self.engine.available(),
            "tasks": Counter(str(row["state"]) for row in tasks),
            "actors": Counter(str(row["state"]) for row in actors),
            "workers": sum(row["is_alive"] for row in rows(self.engine, StateResource.WORKERS)),
            "waiting": [
                {
                    "id": bytes.fromhex(row["task_id"]),
                    "name": row["name"],
                    "kind": "task",
                    "since": (row["creation_time_ms"] or 0) / 1000 or None,
                }
                for row in waiting[:MOST_WAITING]
            ],
        }

    def counts(self) -> dict[str, Any]:
        """Return resources and counts with any engine, including the unfinished actor calls."""
        # Actors report their calls when they are asked, and the node counts them.
        calls = self.task_events(0, 0, 0) or {}
        found = self.summary()
        if found is None:
            found = self.count_rows()
        return {**found, "tasks": Counter(found["tasks"]) + Counter(calls.get("unfinished_calls", {}))}

    def task_events(self, tasks_after: int, calls_after: int, limit: int) -> dict[str, Any] | None:
        """Return the tasks and calls that finished after these positions, and the unfinished ones."""
        return self.engine.observe(View.TASK_EVENTS, tasks_after, calls_after, limit)

    def memory(self, limit: int) -> dict[str, Any] | None:
        """Return the bytes that each process holds, and the largest objects."""
        return self.engine.observe(View.MEMORY_BY_PROCESS, limit)

    def object_store(self) -> dict[str, int]:
        """Return the size and the usage of the object store."""
        return self.engine.object_store()

    def processes(self) -> dict[int, dict[str, Any]]:
        """Return the processes of the session by number, with a title."""
        from skate.util.state._memory import process_titles

        return process_titles(self.engine)

    def actor_lives(self) -> dict[str, ActorLife]:
        """Return the times and the worker of each actor of a Skate node, by id."""
        return {
            row["actor_id"].hex(): ActorLife(
                row["start_time"] or 0.0, row["end_time"] or 0.0, worker_id(row["worker_id"])
            )
            for row in self.engine.state(Table.ACTORS)
        }

    def creation_sites(self, objects: list[bytes]) -> dict[bytes, str]:
        """Return the lines that created objects, if programs record them."""
        return read_sites(self.session, objects)

    def why(self, id: str) -> list[str]:
        """Explain what a task, an object, an actor or a placement group waits for; no lines if that is not known.

        Raises:
            ValueError: The text is not an id.
        """
        try:
            binary = bytes.fromhex(id)
        except ValueError:
            raise ValueError(f"{id!r} is not an id: ids are hexadecimal digits.") from None
        if len(binary) == GROUP_SIZE:
            return self._why_group(binary)
        if len(binary) == ACTOR_SIZE:  # the calls of an actor have its id at their end
            call = object_id(bytes(TASK_SIZE - ACTOR_SIZE) + binary, 1)
            lines = self.engine.why_by_id(call) or []
            return [line.removesuffix(" and has not returned it yet") for line in lines]
        if len(binary) == TASK_SIZE:
            binary = object_id(binary, 1)
        if len(binary) != OBJECT_SIZE:
            raise ValueError(f"{id!r} is not the id of a task, an object, an actor or a placement group.")
        return self.engine.why_by_id(binary) or []

    def _why_group(self, id: bytes) -> list[str]:
        if not self.is_local:
            return []
        rows = [row for row in self.engine.state(Table.GROUPS) if row["placement_group_id"] == id]
        if not rows:
            return [f"placement group {id.hex()[:16]}… is not known to the node"]
        (row,) = rows
        name = f"placement group {row['name'] or id.hex()[:16] + '…'}"
        if row["impossible"]:
            return [f"{name} can never be placed: {row['impossible']}"]
        if row["state"] != "PENDING":
            return [f"{name} is {row['state']}"]
        return [
            f"{name} waits for resources: it asks for {row['bundles']} ({row['strategy']})",
            f"  available are {self.engine.available()}",
        ]

    # ------------------------------------------------------------ actions

    def kill_actor(
        self, name_or_id: str, *, namespace: str | None = None, no_restart: bool = True
    ) -> dict[str, Any]:
        """Kill an actor; return its row as it was before.

        Args:
            name_or_id: The name of the actor, or its id.
            namespace: The namespace of the name; None for any.
            no_restart: Whether the actor stays dead, even if it could be restarted.

        Raises:
            ActorLookupError: No living actor has this name or id, or several have it.
        """
        row = find_actor(self.engine.state(Table.ACTORS), name_or_id, namespace)
        self.engine.kill(row["actor_id"], no_restart=no_restart)
        self.engine.state(
            Table.ACTORS
        )  # its answer shows that the node has the message, so the connection may end
        return row

    def cancel_task(self, id: str, *, force: bool) -> None:
        """Cancel a task or an actor call, and what it has started.

        Raises:
            ValueError: The id is not that of a task, or `force` is true for a call.
        """
        try:
            binary = bytes.fromhex(id)
        except ValueError:
            binary = b""
        if len(binary) != TASK_SIZE:
            raise ValueError(f"{id!r} is not the id of a task: it has {2 * TASK_SIZE} hexadecimal digits.")
        self.engine.cancel_by_id(binary, force=force, recursive=True)


def attach(address: str) -> Observer:
    """Connect to a node as an observer, which is no job.

    Args:
        address: "auto", a session's folder, or the address of a Ray cluster.

    Raises:
        ConnectionError: No such node is running.
    """
    from skate._api import starting
    from skate._api.nodes import plain_address

    address = plain_address(address)
    if address.startswith("ray://"):
        if address == "ray://":
            raise ConnectionError(
                "'ray://' names no cluster: write ray://HOST:PORT, as in ray://head-node:10001."
            )
        machine = starting.Machine(None, None, None, None, None)
        engine = starting.ray(address, machine, starting.Job(None, None, {}, False), "off")
    else:
        engine = starting.observing(address)
    return Observer(engine, engine.shutdown)


def of_this_process() -> Observer:
    """Return an observer of the session of this process."""
    return Observer(engines.current(), lambda: None)
