from __future__ import annotations

import pytest

import skate
from skate.experimental import get_local_object_locations, get_object_locations
from skate.util.queue import Queue


@skate.remote
def take(queue: Queue) -> bytes:
    return bytes(queue.get())


def test_locations_need_a_session() -> None:
    with pytest.raises(RuntimeError, match=r"skate\.init"):
        get_object_locations([])


def test_objects_have_a_size_and_a_node_once_they_exist() -> None:
    skate.init(num_cpus=2)
    try:
        node = skate.get_runtime_context().get_node_id()
        kept, small = skate.put(b"x" * 500_000), skate.put(b"y" * 100)
        queue = Queue()
        pending = take.remote(queue)
        found = get_object_locations([kept, small, pending], timeout_ms=30_000)
        assert found[kept]["node_ids"] == found[small]["node_ids"] == [node]
        assert 100 < found[small]["object_size"] < 1000
        assert found[kept]["object_size"] > 500_000
        assert found[pending] == {"node_ids": [], "object_size": None}
        queue.put(b"done")
        assert skate.get(pending) == b"done"
        assert get_local_object_locations([pending])[pending]["node_ids"] == [node]
    finally:
        skate.shutdown()
