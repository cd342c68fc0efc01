from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import skate
from skate.util.iter import (
    LocalIterator,
    ParallelIteratorWorker,
    from_actors,
    from_items,
    from_iterators,
    from_range,
)
from skate.util.iter_metrics import MetricsContext, SharedMetrics


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: Any) -> Iterator[None]:
    leak_watch.session_is_shared = True
    skate.init(num_cpus=2, engine="local")
    yield
    skate.shutdown()


def test_items_are_distributed_in_turn_and_gathered_in_turn() -> None:
    items = from_items(["a", "b", "c", "d", "e"], num_shards=2)
    assert repr(items) == "ParallelIterator[from_items[str, 5, shards=2]]"
    assert list(items.gather_sync()) == ["a", "b", "c", "d", "e"]
    assert list(items.batch_across_shards()) == []  # a shard's items are taken once


def test_a_range_is_divided_into_runs() -> None:
    numbers = from_range(7, num_shards=3)
    assert numbers.num_shards() == 3
    assert [list(shard) for shard in numbers.shards()] == [[0, 1], [2, 3], [4, 5, 6]]


def test_steps_run_in_the_actors() -> None:
    numbers = (
        from_range(8, num_shards=2)
        .for_each(lambda x: 10 * x)
        .filter(lambda x: x % 20 == 0)
        .combine(lambda x: [x, x + 1])
        .batch(2)
        .flatten()
    )
    assert sorted(numbers.gather_async()) == [0, 1, 20, 21, 40, 41, 60, 61]
    assert repr(numbers).endswith(".for_each().filter().combine().batch(2).flatten()]")


def test_a_generator_function_transforms_a_shard() -> None:
    def pairs(items: Iterable[int]) -> Iterator[tuple[int, int]]:
        return itertools.pairwise(items)

    assert from_range(4, num_shards=1).transform(pairs).take(10) == [(0, 1), (1, 2), (2, 3)]


def test_calls_of_a_step_may_run_side_by_side() -> None:
    squares = from_range(6, num_shards=1).for_each(
        lambda x: x * x, max_concurrency=2, resources={"num_cpus": 0.1}
    )
    assert sorted(squares.gather_sync()) == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("batch_ms", [0, 5])
def test_items_are_repartitioned_without_loss(batch_ms: int) -> None:
    shards = from_range(8, num_shards=2).repartition(3, batch_ms).shards()
    assert sorted(itertools.chain(*shards)) == list(range(8))


def test_shards_are_selected_and_united() -> None:
    numbers = from_range(6, num_shards=3)
    some = numbers.select_shards([0, 2])
    both = some.union(from_items([9], num_shards=1))
    assert sorted(both.gather_async(batch_ms=1, num_async=2)) == [0, 1, 4, 5, 9]
    with pytest.raises(ValueError, match="before union"):
        both.select_shards([0])
    with pytest.raises(ValueError, match=r"shards 0 to 2, got \[3\]"):
        numbers.select_shards([3])


def test_a_shard_can_be_read_in_a_task() -> None:
    shard = from_range(4, num_shards=2).for_each(lambda x: -x).get_shard(1, num_async=2)
    assert skate.get(skate.remote(lambda items: list(items)).remote(shard)) == [-2, -3]


def test_an_iterator_may_repeat() -> None:
    assert from_items([1, 2], num_shards=1, repeat=True).take(5) == [1, 2, 1, 2, 1]
    assert from_iterators([lambda: iter("ab")], repeat=True).take(3) == ["a", "b", "a"]


def test_actors_of_a_class_of_ones_own_are_shards() -> None:
    @skate.remote
    class Counter(ParallelIteratorWorker):
        def __init__(self) -> None:
            super().__init__(itertools.count, repeat=False)

    numbers = from_actors([Counter.remote(), Counter.remote()])
    pairs = numbers.gather_async().zip_with_source_actor().take(4)
    assert {actor for actor, _ in pairs} <= set(numbers.actor_sets[0].actors)
    assert numbers.gather_sync().take(2) != []


def test_an_error_of_a_step_reaches_the_reader() -> None:
    with pytest.raises(ZeroDivisionError):
        from_range(2).for_each(lambda x: 1 // x).take(2)


def local(items: Iterable[Any]) -> LocalIterator[Any]:
    return LocalIterator(lambda _: items, SharedMetrics())


def test_a_shuffle_keeps_the_items_and_repeats_with_its_seed() -> None:
    orders = [local(range(10)).shuffle(4, seed=1).take(10) for _ in range(2)]
    assert orders[0] == orders[1] != list(range(10))
    assert sorted(orders[0]) == list(range(10))


def test_a_union_takes_turns_by_weight() -> None:
    united = local("abc").union(local("xyz"), deterministic=True, round_robin_weights=[2, 1])
    assert united.take(10) == ["a", "b", "x", "c", "y", "z"]
    assert sorted(local("ab").union(local("x"))) == ["a", "b", "x"]
    with pytest.raises(ValueError, match="must have 2 entries, got 1"):
        local("a").union(local("x"), round_robin_weights=[1])


def test_copies_each_yield_everything() -> None:
    first, second = local(range(3)).duplicate(2)
    assert next(first) == 0
    assert list(second) == [0, 1, 2]
    assert list(first) == [1, 2]


def test_functions_share_metrics() -> None:
    class Count:
        def _on_fetch_start(self) -> None:
            LocalIterator.get_metrics().counters["fetched"] += 1

        def __call__(self, item: int) -> int:
            with LocalIterator.get_metrics().timers["call"]:
                return item

    items = local(range(3)).for_each(Count())
    assert list(items) == [0, 1, 2]
    metrics = items.shared_metrics.get()
    assert metrics.counters["fetched"] == 4  # the last time, there was nothing more
    assert metrics.timers["call"].count == 3
    restored = MetricsContext()
    restored.restore(metrics.save())
    assert restored.counters == metrics.counters


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        (lambda: iter(from_range(1, 1)), TypeError, "gather_sync"),
        (lambda: from_range(1, 0), ValueError, "num_shards"),
        (lambda: from_range(1, 1).get_shard(1), ValueError, "Shard 1 does not exist"),
        (lambda: from_range(1, 1).gather_async(num_async=0), ValueError, "num_async"),
        (lambda: from_range(1, 1).for_each(abs, max_concurrency=-1), ValueError, "max_concurrency"),
        (lambda: from_range(1, 1).union([1]), TypeError, "takes a ParallelIterator"),
        (lambda: local("a").batch(0), ValueError, "n must be 1 or more, got 0"),
        (lambda: from_iterators([iter([1])], repeat=True).take(1), ValueError, "only once"),
    ],
    ids=["iter", "shards", "shard", "async", "concurrency", "union", "batch", "repeat"],
)
def test_mistakes_are_named(mistake: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        mistake()
