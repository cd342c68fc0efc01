"""Options of remote functions: returns, retries, names and overrides."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import psutil
import pytest

import skate
from tests.contract.support import Counter, Log, eventually

pytestmark = pytest.mark.usefixtures("engine")


def test_num_returns_gives_that_many_refs() -> None:
    @skate.remote(num_returns=3)
    def three() -> tuple[int, int, int]:
        return 1, 2, 3

    a, b, c = three.remote()
    assert skate.get([a, b, c]) == [1, 2, 3]


def test_num_returns_takes_any_iterable_of_the_right_length() -> None:
    @skate.remote(num_returns=2)
    def pair() -> list[int]:
        return [1, 2]

    assert skate.get(list(pair.remote())) == [1, 2]


def test_num_returns_one_keeps_a_tuple_whole() -> None:
    @skate.remote(num_returns=1)
    def pair() -> tuple[int, int]:
        return 1, 2

    assert skate.get(pair.remote()) == (1, 2)


def test_num_returns_zero_gives_none() -> None:
    counter = Counter.remote()

    @skate.remote(num_returns=0)
    def nothing() -> None:
        skate.get(counter.increment.remote())

    assert nothing.remote() is None


def test_too_few_returned_values_fail_with_value_error() -> None:
    @skate.remote(num_returns=3, max_retries=0)
    def two() -> tuple[int, int]:
        return 1, 2

    refs = two.remote()
    with pytest.raises(ValueError, match="3"):
        skate.get(refs)


def test_too_many_returned_values_fail_with_value_error() -> None:
    @skate.remote(num_returns=2, max_retries=0)
    def three() -> tuple[int, int, int]:
        return 1, 2, 3

    for ref in three.remote():
        with pytest.raises(ValueError, match="2"):
            skate.get(ref)


def test_an_error_reaches_every_ref_of_a_task() -> None:
    @skate.remote(num_returns=2, max_retries=0)
    def fail() -> None:
        raise KeyError("both")

    for ref in fail.remote():
        with pytest.raises(KeyError, match="both"):
            skate.get(ref)


def test_options_overrides_num_returns() -> None:
    @skate.remote
    def pair() -> tuple[int, int]:
        return 1, 2

    a, b = pair.options(num_returns=2).remote()
    assert skate.get([a, b]) == [1, 2]
    assert skate.get(pair.remote()) == (1, 2)


def test_options_leaves_the_original_function_alone() -> None:
    @skate.remote(num_cpus=1)
    def cpus() -> float:
        return skate.get_runtime_context().get_assigned_resources().get("CPU", 0)

    assert skate.get(cpus.options(num_cpus=2).remote()) == 2
    assert skate.get(cpus.remote()) == 1


def test_options_can_be_bound_to_a_name_and_used_twice() -> None:
    @skate.remote
    def echo(x: int) -> int:
        return x

    wide = echo.options(num_cpus=2)
    assert skate.get([wide.remote(1), wide.remote(2)]) == [1, 2]


def test_a_task_name_is_seen_by_the_task() -> None:
    @skate.remote
    def name() -> str | None:
        return skate.get_runtime_context().get_task_name()

    assert skate.get(name.options(name="my-task").remote()) == "my-task"


def test_the_default_task_name_is_the_functions() -> None:
    @skate.remote
    def plainly_named() -> str | None:
        return skate.get_runtime_context().get_task_name()

    assert skate.get(plainly_named.remote()).endswith("plainly_named")


@skate.remote
def fail_until(counter: Any, successes_at: int, error: type[Exception] = ValueError) -> int:
    attempt = skate.get(counter.increment.remote())
    if attempt < successes_at:
        raise error(f"attempt {attempt}")
    return attempt


def test_an_exception_is_not_retried_by_default() -> None:
    counter = Counter.remote()
    with pytest.raises(ValueError, match="attempt 1"):
        skate.get(fail_until.remote(counter, 2))
    assert skate.get(counter.read.remote()) == 1


def test_retry_exceptions_true_retries_any_exception() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=True, max_retries=3)
    assert skate.get(task.remote(counter, 3)) == 3


def test_retry_exceptions_stops_after_max_retries() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=True, max_retries=2)
    with pytest.raises(ValueError, match="attempt 3"):
        skate.get(task.remote(counter, 10))
    assert skate.get(counter.read.remote()) == 3


def test_retry_exceptions_list_retries_a_listed_exception() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=[KeyError], max_retries=3)
    assert skate.get(task.remote(counter, 2, KeyError)) == 2


def test_retry_exceptions_list_retries_a_subclass_of_a_listed_exception() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=[LookupError], max_retries=3)
    assert skate.get(task.remote(counter, 2, KeyError)) == 2


def test_retry_exceptions_list_does_not_retry_another_exception() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=[KeyError], max_retries=3)
    with pytest.raises(ValueError, match="attempt 1"):
        skate.get(task.remote(counter, 2))


def test_max_retries_zero_never_retries() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=True, max_retries=0)
    with pytest.raises(ValueError, match="attempt 1"):
        skate.get(task.remote(counter, 2))


def test_max_retries_minus_one_retries_without_end() -> None:
    counter = Counter.remote()
    task = fail_until.options(retry_exceptions=True, max_retries=-1)
    assert skate.get(task.remote(counter, 10)) == 10


@skate.remote
def die_until(counter: Any, succeeds_at: int) -> int:
    attempt = skate.get(counter.increment.remote())
    if attempt < succeeds_at:
        os._exit(3)
    return attempt


def test_a_dead_worker_is_retried_by_default() -> None:
    counter = Counter.remote()
    assert skate.get(die_until.remote(counter, 2)) == 2


def test_a_dead_worker_is_not_retried_with_max_retries_zero() -> None:
    counter = Counter.remote()
    with pytest.raises(skate.exceptions.WorkerCrashedError):
        skate.get(die_until.options(max_retries=0).remote(counter, 2))
    assert skate.get(counter.read.remote()) == 1


def test_a_dead_worker_is_retried_max_retries_times() -> None:
    counter = Counter.remote()
    with pytest.raises(skate.exceptions.WorkerCrashedError):
        skate.get(die_until.options(max_retries=2).remote(counter, 10))
    assert skate.get(counter.read.remote()) == 3


def test_a_retried_task_gives_its_value_to_those_who_wait() -> None:
    counter = Counter.remote()

    @skate.remote
    def double(x: int) -> int:
        return 2 * x

    flaky = fail_until.options(retry_exceptions=True, max_retries=3)
    assert skate.get(double.remote(flaky.remote(counter, 2))) == 4


def test_max_calls_ends_the_worker_after_that_many_calls() -> None:
    @skate.remote(max_calls=1)
    def pid() -> int:
        return os.getpid()

    pids = [skate.get(pid.remote()) for _ in range(3)]
    assert len(set(pids)) == 3


def test_what_a_task_has_started_goes_on_when_its_worker_ends() -> None:
    log = Log.remote()

    @skate.remote
    def note(what: str) -> None:
        skate.get(log.append.remote(what))

    @skate.remote(max_calls=1)
    def start() -> None:
        log.append.remote("a call")
        log.append.remote(np.ones(1_000_000))
        note.remote("a task")

    skate.get([start.remote() for _ in range(3)])
    items = eventually(lambda: len(found := skate.get(log.items.remote())) == 9 and found)
    told = [item if isinstance(item, str) else "a large one" for item in items]
    assert {each: told.count(each) for each in told} == {"a call": 3, "a large one": 3, "a task": 3}


def test_an_actor_outlives_the_worker_that_has_created_it(engine_name: str) -> None:
    @skate.remote(max_calls=1)
    def create() -> tuple[Any, int]:
        return Log.remote(), os.getpid()

    log, pid = skate.get(create.remote())
    if engine_name == "local":  # a worker of Ray stays for as long as its actors do
        eventually(lambda: not psutil.pid_exists(pid), "the worker has ended")
    assert skate.get(log.append.remote("still there")) == 1


def test_the_decorator_takes_options() -> None:
    @skate.remote(num_cpus=2, max_retries=0)
    def cpus() -> float:
        return skate.get_runtime_context().get_assigned_resources()["CPU"]

    assert skate.get(cpus.remote()) == 2


def test_remote_with_options_wraps_a_function() -> None:
    def cpus() -> float:
        return skate.get_runtime_context().get_assigned_resources()["CPU"]

    assert skate.get(skate.remote(num_cpus=2)(cpus).remote()) == 2


def test_enable_task_events_off_still_runs_the_task() -> None:
    @skate.remote(enable_task_events=False)
    def one() -> int:
        return 1

    assert skate.get(one.remote()) == 1
