"""Objects: put, zero-copy reads, immutability, sizes, the memory budget and spilling."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import skate
from tests.contract.support import eventually
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")

MB = 1024 * 1024


@skate.remote
def identity(value: Any) -> Any:
    return value


@skate.remote
def called(function: Any, value: Any) -> Any:
    return function(value)


@pytest.fixture
def ghost(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that only this process has, and whose functions travel by value because it was told so."""
    module = ModuleType("ghost_of_the_driver")
    exec("def twice(value): return 2 * value", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    skate.cloudpickle.register_pickle_by_value(module)
    yield module
    skate.cloudpickle.unregister_pickle_by_value(module)


def test_what_is_registered_to_travel_by_value_does_as_an_object(ghost: ModuleType) -> None:
    assert skate.get(called.remote(skate.put(ghost.twice), 4)) == 8


def test_what_is_registered_to_travel_by_value_does_as_an_argument(request: pytest.FixtureRequest) -> None:
    assert skate.get(called.remote(abs, -4)) == 4  # the task is known already when the module is registered
    ghost = request.getfixturevalue("ghost")
    assert skate.get(called.remote(ghost.twice, value=4)) == 8


def test_put_and_get_return_an_equal_value() -> None:
    assert skate.get(skate.put({"a": [1, 2, (3,)]})) == {"a": [1, 2, (3,)]}


def test_put_copies_the_value() -> None:
    items = [1]
    ref = skate.put(items)
    items.append(2)
    assert skate.get(ref) == [1]


def test_each_get_of_a_small_object_gives_its_own_copy() -> None:
    ref = skate.put([1])
    skate.get(ref).append(2)
    assert skate.get(ref) == [1]


def test_put_of_a_ref_is_refused() -> None:
    with pytest.raises(TypeError):
        skate.put(skate.put(1))


def test_put_of_a_list_of_refs_is_fine() -> None:
    inner = [skate.put(1), skate.put(2)]
    assert skate.get(skate.get(skate.put(inner))) == [1, 2]


def test_put_works_inside_a_task() -> None:
    @skate.remote
    def make() -> Any:
        return [skate.put("made inside")]

    assert skate.get(skate.get(make.remote())[0]) == "made inside"


@pytest.mark.parametrize("size", [0, 1, 1000, 100 * 1024 - 1, 100 * 1024, 100 * 1024 + 1, 3 * MB])
def test_bytes_of_any_size_make_the_round_trip(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert skate.get(skate.put(data)) == data


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "float32", "float64", "bool", "complex128", "<U5", "M8[s]"]
)
def test_an_array_of_any_type_makes_the_round_trip(dtype: str) -> None:
    array = np.zeros((3, 4), dtype=dtype)
    result = skate.get(identity.remote(array))
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (200_000,), (100, 50, 40)])
def test_an_array_of_any_shape_makes_the_round_trip(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    np.testing.assert_array_equal(skate.get(skate.put(array)), array)


def test_a_fortran_ordered_array_keeps_its_order() -> None:
    array = np.asfortranarray(np.arange(60_000.0).reshape(200, 300))
    result = skate.get(skate.put(array))
    assert result.flags.f_contiguous
    np.testing.assert_array_equal(result, array)


def test_a_strided_view_makes_the_round_trip() -> None:
    array = np.arange(100_000)[::3]
    np.testing.assert_array_equal(skate.get(skate.put(array)), array)


def test_an_array_of_python_objects_makes_the_round_trip() -> None:
    array = np.array([{"a": 1}, [2]], dtype=object)
    assert list(skate.get(skate.put(array))) == [{"a": 1}, [2]]


def test_a_large_array_is_read_only() -> None:
    array = skate.get(skate.put(np.zeros(MB)))
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_large_array_argument_is_read_only() -> None:
    @skate.remote
    def write(array: Any) -> None:
        array[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        skate.get(write.remote(skate.put(np.zeros(MB))))


def test_a_copy_of_a_large_array_is_writable() -> None:
    array = skate.get(skate.put(np.zeros(MB))).copy()
    array[0] = 1
    assert array[0] == 1


def test_two_gets_of_a_large_array_share_memory() -> None:
    ref = skate.put(np.arange(MB))
    assert np.shares_memory(skate.get(ref), skate.get(ref))


def test_arrays_inside_a_structure_are_shared_too() -> None:
    ref = skate.put({"x": [np.arange(MB)]})
    assert np.shares_memory(skate.get(ref)["x"][0], skate.get(ref)["x"][0])


def test_an_array_stays_valid_after_its_ref_is_gone() -> None:
    ref = skate.put(np.arange(MB))
    array = skate.get(ref)
    del ref
    gc.collect()
    others = [skate.put(np.zeros(MB)) for _ in range(3)]
    assert array[-1] == MB - 1
    del others


def test_a_slice_stays_valid_after_its_array_is_gone() -> None:
    part = skate.get(skate.put(np.arange(MB)))[10:20]
    gc.collect()
    others = [skate.put(np.zeros(MB)) for _ in range(3)]
    assert list(part) == list(range(10, 20))
    del others


def test_an_arrow_table_is_shared_without_a_copy() -> None:
    pa = pytest.importorskip("pyarrow")
    ref = skate.put(pa.table({"x": np.arange(200_000)}))
    first, second = skate.get(ref), skate.get(ref)
    assert first.equals(second)
    addresses = [t.column("x").chunk(0).buffers()[1].address for t in (first, second)]
    assert addresses[0] == addresses[1]


def test_a_cpu_tensor_makes_the_round_trip() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(200_000, dtype=torch.float32).reshape(2, -1)
    assert torch.equal(skate.get(identity.remote(tensor)), tensor)


def test_a_large_result_of_a_task_is_shared_memory() -> None:
    @skate.remote
    def make() -> Any:
        return np.arange(MB)

    ref = make.remote()
    first, second = skate.get(ref), skate.get(ref)
    assert first[-1] == MB - 1
    assert np.shares_memory(first, second)


def test_one_large_object_is_read_by_many_tasks() -> None:
    @skate.remote
    def total(array: Any) -> float:
        return float(array.sum())

    ref = skate.put(np.ones(MB))
    assert skate.get([total.remote(ref) for _ in range(8)]) == [float(MB)] * 8


def test_many_threads_get_one_large_object() -> None:
    with ThreadPoolExecutor(8) as threads:
        for i in range(50):
            ref = skate.put(np.full(MB // 8, i))
            assert {int(array[-1]) for array in threads.map(skate.get, [ref] * 8)} == {i}


def test_many_objects_of_different_sizes_keep_apart() -> None:
    sizes = [1, 10, 1000, 50_000, 200_000, 1_000_000] * 3
    refs = [skate.put(np.full(size, i)) for i, size in enumerate(sizes)]
    for i, (size, array) in enumerate(zip(sizes, skate.get(refs), strict=True)):
        assert array.size == size
        assert (array == i).all()


def test_an_object_holding_many_refs_makes_the_round_trip() -> None:
    refs = [skate.put(i) for i in range(500)]
    assert skate.get(skate.get(identity.remote([refs]))[0]) == list(range(500))


def test_a_registered_serializer_is_used() -> None:
    class Opaque:
        def __init__(self, value: int) -> None:
            self.value = value

        def __reduce__(self) -> Any:
            raise TypeError("cannot be pickled")

    skate.util.register_serializer(Opaque, serializer=lambda o: o.value, deserializer=lambda v: Opaque(v + 1))
    try:
        assert skate.get(skate.put(Opaque(1))).value == 2
    finally:
        skate.util.deregister_serializer(Opaque)
    with pytest.raises(TypeError):
        skate.put(Opaque(1))


def test_more_than_the_budget_is_spilled_and_comes_back(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)
    refs = [skate.put(np.full(2 * MB, i)) for i in range(12)]  # 16 MB each, 192 MB in all
    for i, ref in enumerate(refs):
        array = skate.get(ref)
        assert array[0] == array[-1] == i
        del array


def test_spilled_objects_reach_tasks(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def first(array: Any) -> int:
        return int(array[0])

    refs = [skate.put(np.full(2 * MB, i)) for i in range(10)]
    assert [skate.get(first.remote(ref)) for ref in refs] == list(range(10))


def test_freed_objects_make_room_without_spilling(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)
    for i in range(20):
        ref = skate.put(np.full(2 * MB, i))
        assert skate.get(ref)[0] == i
        del ref


def test_results_of_tasks_may_exceed_the_budget(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def make(i: int) -> Any:
        return np.full(2 * MB, i)

    refs = [make.remote(i) for i in range(10)]
    for i, ref in enumerate(refs):
        assert skate.get(ref)[0] == i


def test_an_object_may_be_larger_than_the_budget(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def double(array: Any) -> Any:
        return 2 * array

    ones = skate.put(np.ones(100 * MB, dtype=np.uint8))
    twos = skate.get(double.remote(ones))
    assert (twos[0], twos[-1], twos.nbytes) == (2, 2, 100 * MB)


def test_arrays_that_are_kept_may_exceed_the_budget(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    @skate.remote
    def make(i: int) -> Any:
        return np.full(3 * MB, i)

    arrays = [skate.get(skate.put(np.full(3 * MB, i))) for i in range(5)]
    arrays += skate.get([make.remote(i) for i in range(5, 8)])
    assert [(array[0], array[-1]) for array in arrays] == [(i, i) for i in range(8)]


def test_available_memory_of_the_store_falls_as_it_fills(fresh: Start) -> None:
    fresh(object_store_memory=80 * MB)

    def available() -> float:
        return skate.available_resources().get("object_store_memory", 0.0)

    total = skate.cluster_resources()["object_store_memory"]
    assert available() == total
    ref = skate.put(np.zeros(30 * MB, dtype=np.uint8))
    eventually(lambda: available() <= total - 30 * MB)
    assert skate.cluster_resources()["object_store_memory"] == total
    del ref
    eventually(lambda: available() == total)


def test_a_ref_is_small_whatever_it_names() -> None:
    ref = skate.put(np.zeros(MB))
    assert sys.getsizeof(ref) < 1000
