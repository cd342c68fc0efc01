"""References: identity, nesting, passing them on, and freeing objects when the last one is dropped."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import skate
from tests.contract.support import Signal, eventually
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")

MB = 1024 * 1024


@skate.remote
def identity(value: Any) -> Any:
    return value


@skate.remote
def read(refs: list[Any]) -> Any:
    return skate.get(refs[0])


@skate.remote
class Keeper:
    def __init__(self) -> None:
        self.refs: list[Any] = []

    def keep(self, refs: list[Any]) -> None:
        self.refs += refs

    def read(self) -> list[Any]:
        return skate.get(self.refs)

    def give(self) -> list[Any]:
        return self.refs

    def forget(self) -> None:
        self.refs.clear()


def test_refs_are_equal_when_they_name_one_object() -> None:
    ref = skate.put(1)
    same = skate.get(identity.remote([ref]))[0]
    assert same == ref
    assert hash(same) == hash(ref)
    assert ref != skate.put(1)


def test_a_ref_is_not_equal_to_other_things() -> None:
    ref = skate.put(1)
    assert ref != 1
    assert ref != ref.hex()
    assert ref is not None


def test_refs_can_be_dict_keys_and_set_members() -> None:
    refs = [skate.put(i) for i in range(3)]
    names = {ref: i for i, ref in enumerate(refs)}
    assert [names[ref] for ref in refs] == [0, 1, 2]
    assert len({*refs, *refs}) == 3


def test_a_ref_shows_its_id() -> None:
    ref = skate.put(1)
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    assert bytes.fromhex(ref.hex()) == ref.binary()


def test_a_ref_names_its_task_and_job() -> None:
    ref = identity.remote(1)
    assert isinstance(ref.task_id(), skate.TaskID)
    assert isinstance(ref.job_id(), skate.JobID)
    assert ref.job_id().hex() == skate.get_runtime_context().get_job_id()
    skate.get(ref)


def test_refs_nest_in_any_container() -> None:
    value = {"list": [skate.put(1)], "tuple": (skate.put(2),), "deep": {"deeper": [{"set": skate.put(3)}]}}
    result = skate.get(identity.remote(value))
    refs = [result["list"][0], result["tuple"][0], result["deep"]["deeper"][0]["set"]]
    assert skate.get(refs) == [1, 2, 3]


def test_refs_nest_in_instances() -> None:
    class Box:
        def __init__(self, ref: Any) -> None:
            self.ref = ref

    assert skate.get(skate.get(identity.remote(Box(skate.put("boxed")))).ref) == "boxed"


def test_refs_nest_in_refs() -> None:
    ref = skate.put([skate.put([skate.put("core")])])
    middle = skate.get(ref)[0]
    assert skate.get(skate.get(middle)[0]) == "core"


def test_a_ref_in_a_closure_keeps_its_object() -> None:
    def closed_over(ref: Any) -> Any:
        @skate.remote
        def use() -> str:
            return skate.get(ref)

        return use

    use = closed_over(skate.put("closed over"))
    gc.collect()
    assert skate.get(use.remote()) == "closed over"


def test_a_nested_ref_outlives_the_callers() -> None:
    refs = [skate.put(np.ones(MB))]
    answer = read.remote(refs)
    del refs
    gc.collect()
    assert skate.get(answer).sum() == MB


def test_a_direct_argument_outlives_the_callers_ref() -> None:
    signal = Signal.remote()

    @skate.remote
    def late(array: Any, _: None) -> float:
        return float(array.sum())

    @skate.remote
    def gate() -> None:
        skate.get(signal.wait.remote())

    ref = skate.put(np.ones(MB))
    answer = late.remote(ref, gate.remote())
    del ref
    gc.collect()
    signal.send.remote()
    assert skate.get(answer) == MB


def test_a_ref_put_inside_a_container_object_outlives_the_callers() -> None:
    inner = skate.put(np.ones(MB))
    outer = skate.put([inner])
    del inner
    gc.collect()
    assert skate.get(skate.get(outer)[0]).sum() == MB


def test_an_actor_keeps_the_refs_it_was_given() -> None:
    keeper = Keeper.remote()
    skate.get(keeper.keep.remote([skate.put(np.ones(MB)), skate.put("small")]))
    gc.collect()
    array, small = skate.get(keeper.read.remote())
    assert array.sum() == MB
    assert small == "small"


def test_a_ref_travels_through_actor_and_task_and_back() -> None:
    keeper = Keeper.remote()

    @skate.remote
    def hand_over(keeper: Any) -> None:
        skate.get(keeper.keep.remote([skate.put("from task")]))

    skate.get(hand_over.remote(keeper))
    refs = skate.get(keeper.give.remote())
    skate.get(keeper.forget.remote())
    assert skate.get(refs) == ["from task"]


def test_a_result_ref_outlives_the_worker_that_put_it() -> None:
    @skate.remote(max_calls=1)
    def make() -> Any:
        return [skate.put(np.ones(MB))]

    ref = skate.get(make.remote())[0]
    assert skate.get(ref).sum() == MB


def test_a_ref_survives_being_passed_down_a_chain_of_tasks() -> None:
    @skate.remote
    def pass_down(refs: list[Any], depth: int) -> Any:
        return refs if depth == 0 else skate.get(pass_down.remote(refs, depth - 1))

    ref = skate.get(pass_down.remote([skate.put("bottom")], 4))[0]
    assert skate.get(ref) == "bottom"


def test_pickling_a_ref_outside_of_skate_keeps_the_object() -> None:
    ref = skate.put("pickled")
    copy = skate.cloudpickle.loads(skate.cloudpickle.dumps(ref))
    assert copy == ref
    assert skate.get(copy) == "pickled"


def test_a_local_value_is_not_kept_by_get() -> None:
    class Box:
        pass

    box = skate.get(skate.put(Box()))
    watch = weakref.ref(box)
    del box
    gc.collect()
    assert watch() is None


def test_freed_objects_give_their_memory_back(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)
    for i in range(30):
        ref = skate.put(np.full(2 * MB, i))  # 16 MB
        del ref
    eventually(lambda: skate.available_resources()["object_store_memory"] >= 60 * MB)


def test_an_object_stays_while_any_ref_to_it_lives(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)
    keep = skate.put(np.full(MB, 7))
    copy = skate.get(identity.remote([keep]))[0]
    del keep
    for i in range(20):
        skate.put(np.full(2 * MB, i))
    assert (skate.get(copy) == 7).all()


def test_results_nobody_holds_are_freed(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def make() -> Any:
        return np.ones(2 * MB)

    for _ in range(15):
        skate.wait([make.remote()])
    eventually(lambda: skate.available_resources()["object_store_memory"] >= 60 * MB)


def test_arguments_are_freed_after_their_task(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def first(array: Any) -> float:
        return float(array[0])

    for i in range(15):
        assert skate.get(first.remote(np.full(2 * MB, i))) == i
    eventually(lambda: skate.available_resources()["object_store_memory"] >= 60 * MB)


def test_a_plain_pickle_of_a_ref_is_refused_or_kept_alive() -> None:
    ref = skate.put("x")
    try:
        copy = pickle.loads(pickle.dumps(ref))
    except (TypeError, pickle.PicklingError, skate.exceptions.RayError):
        return
    assert skate.get(copy) == "x"
