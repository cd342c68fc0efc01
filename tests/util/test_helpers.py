from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.util.helpers import as_completed, map_unordered
from tests.contract.support import Signal


@skate.remote
def after(event: Any, value: int) -> int:
    skate.get(event.wait.remote())
    return value


@skate.remote
def after_pair(pair: tuple[Any, int]) -> int:
    skate.get(pair[0].wait.remote())
    return pair[1]


@skate.remote
def double(x: int) -> int:
    return 2 * x


@skate.remote
class Doubler:
    def double(self, x: int) -> int:
        return 2 * x


def values_of(results: list[Any], yield_obj_refs: bool) -> Any:
    assert all(isinstance(each, skate.ObjectRef) == yield_obj_refs for each in results)
    return skate.get(results) if yield_obj_refs else results


@pytest.mark.parametrize("yield_obj_refs", [False, True])
def test_as_completed_gives_each_result_when_it_is_ready(local: None, yield_obj_refs: bool) -> None:
    events = [Signal.remote() for _ in range(3)]
    refs = [after.remote(event, i) for i, event in enumerate(events)]
    results = as_completed(refs, chunk_size=1, yield_obj_refs=yield_obj_refs)
    found = []
    for event in reversed(events):
        skate.get(event.send.remote())
        found.append(next(results))
    assert values_of(found, yield_obj_refs) == [2, 1, 0]


@pytest.mark.parametrize("yield_obj_refs", [False, True])
def test_map_unordered_gives_each_result_when_it_is_ready(local: None, yield_obj_refs: bool) -> None:
    events = [Signal.remote() for _ in range(3)]
    pairs = [(event, i) for i, event in enumerate(events)]
    results = map_unordered(after_pair, pairs, chunk_size=1, yield_obj_refs=yield_obj_refs)
    found = []
    for event in reversed(events):
        skate.get(event.send.remote())
        found.append(next(results))
    assert values_of(found, yield_obj_refs) == [2, 1, 0]


def test_results_of_one_chunk_keep_their_order(local: None) -> None:
    events = [Signal.remote() for _ in range(5)]
    results = as_completed([after.remote(event, i) for i, event in enumerate(events)], chunk_size=2)
    found = []
    for ready in ([4, 3], [2, 1], [0]):
        skate.get([events[i].send.remote() for i in ready])
        found.extend(next(results) for _ in ready)
    assert found == [3, 4, 1, 2, 0]


@pytest.mark.parametrize("chunk_size", [1, 3, 100])
@pytest.mark.parametrize("backpressure_size", [1, 4, None])
def test_map_unordered_maps_everything(
    any_engine: str, chunk_size: int, backpressure_size: int | None
) -> None:
    results = map_unordered(
        double, iter(range(10)), chunk_size=chunk_size, backpressure_size=backpressure_size
    )
    assert sorted(results) == [2 * x for x in range(10)]


def test_map_unordered_takes_the_method_of_an_actor(any_engine: str) -> None:
    assert sorted(map_unordered(Doubler.remote().double, range(3))) == [0, 2, 4]


def test_map_unordered_reads_no_more_items_than_it_may_run(any_engine: str) -> None:
    read = []

    def items() -> Iterator[int]:
        for x in range(100):
            read.append(x)
            yield x

    results = map_unordered(double, items(), backpressure_size=5, chunk_size=1)
    next(results)
    assert len(read) == 6


def test_an_error_is_raised_when_its_turn_comes(any_engine: str) -> None:
    @skate.remote
    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        list(as_completed([fail.remote()]))


def test_nothing_gives_nothing(any_engine: str) -> None:
    assert list(as_completed([])) == []
    assert list(map_unordered(double, [])) == []


def test_a_timeout_for_wait_only_sets_how_often_to_look(local: None) -> None:
    event = Signal.remote()
    ref = after.remote(event, 1)
    results = as_completed([skate.put(0), ref], chunk_size=2, timeout=0.01)
    assert next(results) == 0
    event.send.remote()
    assert next(results) == 1


def test_wrong_arguments_are_refused_at_once(any_engine: str) -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        as_completed([], chunk_size=0)
    with pytest.raises(ValueError, match="chunk_size"):
        as_completed([], num_returns=1)
    with pytest.raises(TypeError, match=r"pass \[ref\]"):
        as_completed(skate.put(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backpressure_size"):
        map_unordered(double, [], backpressure_size=0)
    with pytest.raises(TypeError, match=r"@skate\.remote"):
        map_unordered(len, [])  # type: ignore[arg-type]
