"""Remote functions: calls, arguments, results and nesting."""

from __future__ import annotations

import collections
import functools
import os
from typing import Any

import pytest

import skate
from tests.contract.support import Counter, Signal

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def identity(value: Any) -> Any:
    return value


@skate.remote
def add(a: int, b: int = 10) -> int:
    return a + b


def test_a_task_returns_its_value() -> None:
    assert skate.get(add.remote(1, 2)) == 3


def test_a_task_takes_keyword_and_default_arguments() -> None:
    assert skate.get([add.remote(1), add.remote(1, b=5), add.remote(b=2, a=1)]) == [11, 6, 3]


def test_a_task_takes_variable_arguments() -> None:
    @skate.remote
    def collect(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    assert skate.get(collect.remote()) == ((), {})
    assert skate.get(collect.remote(1, "a", x=None)) == ((1, "a"), {"x": None})


def test_a_task_without_return_statement_gives_none() -> None:
    @skate.remote
    def nothing() -> None:
        pass

    assert skate.get(nothing.remote()) is None


def test_remote_returns_an_object_ref() -> None:
    ref = identity.remote(1)
    assert isinstance(ref, skate.ObjectRef)
    skate.get(ref)


def test_calling_a_remote_function_directly_says_to_use_remote() -> None:
    with pytest.raises(TypeError, match=r"\.remote\("):
        add(1, 2)


def test_remote_wraps_a_function_without_decorator_syntax() -> None:
    assert skate.get(skate.remote(lambda x: x + 1).remote(1)) == 2


def test_a_closure_travels_with_its_variables() -> None:
    offset = 5

    @skate.remote
    def shifted(x: int) -> int:
        return x + offset

    assert skate.get(shifted.remote(1)) == 6


def test_a_closure_is_captured_at_its_first_call() -> None:
    box = [1]

    @skate.remote
    def first() -> int:
        return box[0]

    assert skate.get(first.remote()) == 1
    box[0] = 2
    assert skate.get(first.remote()) == 1


def test_a_task_uses_globals_of_its_module() -> None:
    @skate.remote
    def path() -> str:
        return os.path.join("a", "b")

    assert skate.get(path.remote()) == os.path.join("a", "b")


def test_arguments_are_copies_of_the_callers_values() -> None:
    @skate.remote
    def change(items: list[int]) -> list[int]:
        items.append(4)
        return items

    mine = [1, 2, 3]
    assert skate.get(change.remote(mine)) == [1, 2, 3, 4]
    assert mine == [1, 2, 3]


def test_results_are_copies_of_the_tasks_values() -> None:
    @skate.remote
    class Keeper:
        def __init__(self) -> None:
            self.items = [1]

        def give(self) -> list[int]:
            return self.items

    keeper = Keeper.remote()
    skate.get(keeper.give.remote()).append(2)
    assert skate.get(keeper.give.remote()) == [1]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**200),
        1.5,
        complex(1, 2),
        "ü" * 100,
        b"\x00\xff",
        (1, (2, [3])),
        {"a": {1: {2}}},
        frozenset([1]),
        collections.OrderedDict(b=1, a=2),
        range(3),
        Ellipsis,
        int,
        ValueError,
    ],
    ids=lambda v: f"{v!r:.20}",
)
def test_a_value_makes_the_round_trip_unchanged(value: Any) -> None:
    result = skate.get(identity.remote(value))
    assert result == value
    assert type(result) is type(value)


def test_a_lambda_makes_the_round_trip() -> None:
    assert skate.get(identity.remote(lambda x: x * 2))(4) == 8


def test_an_instance_of_a_local_class_makes_the_round_trip() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    assert skate.get(identity.remote(Point(3))).x == 3


def test_a_partial_can_be_an_argument() -> None:
    assert skate.get(identity.remote(functools.partial(max, 5)))(3) == 5


def test_a_ref_argument_arrives_as_its_value() -> None:
    assert skate.get(add.remote(skate.put(1), b=identity.remote(2))) == 3


def test_a_ref_inside_a_container_arrives_as_a_ref() -> None:
    @skate.remote
    def kind(items: list[Any]) -> tuple[bool, Any]:
        return isinstance(items[0], skate.ObjectRef), skate.get(items[0])

    assert skate.get(kind.remote([skate.put("x")])) == (True, "x")


def test_a_task_returning_a_ref_gives_a_ref() -> None:
    inner = skate.get(identity.remote([add.remote(1, 1)]))[0]
    assert isinstance(inner, skate.ObjectRef)
    assert skate.get(inner) == 2


def test_a_chain_of_tasks_passes_values_along() -> None:
    ref = skate.put(0)
    for _ in range(50):
        ref = add.remote(ref, 1)
    assert skate.get(ref) == 50


def test_a_diamond_of_tasks_runs_each_task_once() -> None:
    counter = Counter.remote()

    @skate.remote
    def source() -> int:
        return skate.get(counter.increment.remote())

    top = source.remote()
    left, right = add.remote(top, 1), add.remote(top, 2)
    assert skate.get(add.remote(left, right)) == 5
    assert skate.get(counter.read.remote()) == 1


def test_a_task_starts_only_when_its_argument_is_there() -> None:
    signal = Signal.remote()

    @skate.remote
    def gate() -> str:
        skate.get(signal.wait.remote())
        return "open"

    @skate.remote
    def was_sent(gate: str) -> bool:
        return skate.get(signal.has_been_sent.remote())

    answer = was_sent.remote(gate.remote())
    signal.send.remote()
    assert skate.get(answer) is True


def test_a_large_argument_and_result_make_the_round_trip() -> None:
    data = os.urandom(5_000_000)
    assert skate.get(identity.remote(data)) == data


def test_the_same_ref_may_be_passed_twice() -> None:
    ref = skate.put(4)
    assert skate.get(add.remote(ref, ref)) == 8


def test_a_failed_argument_fails_the_task_with_the_same_error() -> None:
    @skate.remote(max_retries=0)
    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        skate.get(add.remote(fail.remote(), 1))


def test_a_task_submits_tasks() -> None:
    @skate.remote
    def outer(n: int) -> list[int]:
        return skate.get([add.remote(i, 0) for i in range(n)])

    assert skate.get(outer.remote(5)) == [0, 1, 2, 3, 4]


def test_a_task_returns_refs_of_the_tasks_it_submitted() -> None:
    @skate.remote
    def outer() -> list[Any]:
        return [add.remote(i, 0) for i in range(3)]

    assert skate.get(skate.get(outer.remote())) == [0, 1, 2]


def test_a_recursive_task_finishes() -> None:
    @skate.remote
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * skate.get(factorial.remote(n - 1))

    assert skate.get(factorial.remote(8)) == 40320


def test_nested_tasks_wider_than_the_machine_do_not_deadlock() -> None:
    @skate.remote
    def leaf() -> int:
        return 1

    @skate.remote
    def branch() -> int:
        return sum(skate.get([leaf.remote() for _ in range(3)]))

    assert skate.get([branch.remote() for _ in range(8)]) == [3] * 8


@pytest.mark.one_machine
def test_many_tasks_that_wait_for_others_need_few_processes() -> None:
    @skate.remote
    def leaf() -> int:
        return os.getpid()

    @skate.remote
    def branch() -> set[int]:
        return {os.getpid(), skate.get(leaf.remote())}

    @skate.remote
    def root() -> set[int]:
        return {os.getpid(), *skate.get(branch.remote())}

    processes = set.union(*skate.get([root.remote() for _ in range(60)]))
    assert len(processes) <= 60  # instead of one for each root and branch


@pytest.mark.one_machine
def test_a_task_blocked_in_get_gives_its_cpu_back() -> None:
    @skate.remote(num_cpus=4)
    def whole_machine(depth: int) -> int:
        return depth if depth == 0 else skate.get(whole_machine.remote(depth - 1))

    assert skate.get(whole_machine.remote(2)) == 0


@pytest.mark.one_machine
def test_a_task_blocked_in_wait_gives_its_cpu_back() -> None:
    @skate.remote(num_cpus=4)
    def whole_machine(depth: int) -> int:
        if depth == 0:
            return 0
        ready, _ = skate.wait([whole_machine.remote(depth - 1)])
        return skate.get(ready[0])

    assert skate.get(whole_machine.remote(2)) == 0


def test_a_remote_function_is_defined_inside_a_task() -> None:
    @skate.remote
    def outer() -> int:
        @skate.remote
        def inner(x: int) -> int:
            return x + 1

        return skate.get(inner.remote(1))

    assert skate.get(outer.remote()) == 2


def test_a_remote_function_can_be_an_argument() -> None:
    @skate.remote
    def call(function: Any) -> int:
        return skate.get(function.remote(1, 2))

    assert skate.get(call.remote(add)) == 3


def test_two_functions_with_one_name_are_two_functions() -> None:
    def make(result: int) -> Any:
        @skate.remote
        def same() -> int:
            return result

        return same

    assert skate.get([make(1).remote(), make(2).remote()]) == [1, 2]


def test_tasks_run_side_by_side() -> None:
    signal = Signal.remote()

    @skate.remote
    def wait() -> str:
        skate.get(signal.wait.remote())
        return "done"

    refs = [wait.remote() for _ in range(3)]
    skate.get(signal.wait_for_waiters.remote(3))
    signal.send.remote()
    assert skate.get(refs) == ["done"] * 3


def test_a_thousand_small_tasks_return_in_order() -> None:
    assert skate.get([identity.remote(i) for i in range(1000)]) == list(range(1000))


def test_an_argument_that_is_an_exception_is_only_a_value() -> None:
    result = skate.get(identity.remote([ValueError("not raised")]))
    assert isinstance(result[0], ValueError)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_bound_task_runs_when_executed() -> None:
    node = add.bind(identity.bind(1), 2)
    assert skate.get(node.execute()) == 3
