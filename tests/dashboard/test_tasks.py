"""The copy of the node's history of tasks: bounded, and honest about what it leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skate.dashboard import _tasks
from skate.dashboard._node import Node
from skate.dashboard._tasks import CHUNK, MOST_KEPT, TaskHistory


class BusyNode:
    """A node where many tasks finish between two questions; it keeps the last 10,000."""

    node_id = "n"
    is_local = False
    session = "/nowhere"
    kept = 10_000

    def __init__(self, finished: int, rate: int) -> None:
        self.total = finished
        self.rate = rate
        self.engine = SimpleNamespace(name="local")
        self.asked = 0

    def about(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass

    def task_events(self, tasks_after: int, calls_after: int, limit: int) -> dict[str, Any]:
        self.asked += 1
        start = max(tasks_after, self.total - self.kept)
        end = min(self.total, start + limit)
        answer = {
            "finished": [row(number) for number in range(start, end)],
            "unfinished": [row(number) for number in range(self.total, self.total + 3)],
            "unfinished_total": 3,
            "tasks_at": end,
            "tasks_total": self.total,
            "calls_at": 0,
            "calls_total": 0,
        }
        self.total += self.rate
        return answer


def row(number: int) -> dict[str, Any]:
    return {
        "task_id": number.to_bytes(24, "big"),
        "name": f"task {number}",
        "started": float(number),
        "ended": float(number + 1),
    }


async def updated(node: BusyNode, times: int) -> TaskHistory:
    connection = Node(lambda: node)  # type: ignore[arg-type,return-value]
    await connection.start()
    history = TaskHistory(connection)
    for _ in range(times):
        connection._shared.clear()  # as if a second had passed
        await history.update()
    await connection.close()
    return history


async def test_all_that_a_quiet_node_keeps_is_read() -> None:
    node = BusyNode(finished=12_345, rate=0)
    history = await updated(node, 1)
    assert len(history.finished) == 10_000
    assert history.dropped == 2345
    assert history.total == 12_348
    assert [task.raw["name"] for task in history.newest()][3] == "task 12344"


async def test_a_node_is_asked_once_if_nothing_is_new() -> None:
    node = BusyNode(finished=500, rate=0)
    await updated(node, 1)
    assert node.asked == 1
    history = await updated(node, 5)
    assert len(history.finished) == 500
    assert history.dropped == 0


async def test_what_finished_while_no_page_was_open_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(_tasks, "time", SimpleNamespace(monotonic=lambda: now))
    node = BusyNode(finished=500, rate=0)
    connection = Node(lambda: node)  # type: ignore[arg-type,return-value]
    await connection.start()
    history = await TaskHistory(connection).update()
    node.total += 6 * CHUNK
    now += 7.0
    connection._shared.clear()
    await history.update()
    assert history.dropped == 0
    assert len(history.finished) == 500 + 6 * CHUNK
    await connection.close()


async def test_a_million_tasks_need_bounded_memory_and_are_counted() -> None:
    node = BusyNode(finished=0, rate=25_000)
    history = await updated(node, 41)
    seen = node.total - node.rate
    assert seen >= 1_000_000
    assert len(history.finished) <= MOST_KEPT
    assert history.dropped == seen - len(history.finished)
    # An answer has at most one chunk, and the newest come first.
    assert history.finished[-1].raw["started"] >= seen - node.rate - CHUNK


async def test_a_new_node_begins_a_new_history() -> None:
    first, second = BusyNode(100, 0), BusyNode(7, 0)
    nodes = [first, second]
    connection = Node(lambda: nodes.pop(0))  # type: ignore[arg-type,return-value]
    await connection.start()
    history = await TaskHistory(connection).update()
    assert len(history.finished) == 100
    await connection._open()
    await history.update()
    assert len(history.finished) == 7
    await connection.close()
