"""Wrong calls raise a typed error that names the value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

import skate
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


def function(a: int, b: int = 0) -> int:
    return a + b


class Class:
    def __init__(self, a: int = 0) -> None: ...

    def method(self, a: int = 0) -> int:
        return a


def case(error: Any, words: str, **options: Any) -> Any:
    """Return a parameter: these options, the error they deserve, and words that its message has."""
    return pytest.param(options, error, words, id=",".join(f"{k}={v}" for k, v in options.items()))


TASK_MISTAKES = [
    case(ValueError, "num_cpu", num_cpu=1),
    case(ValueError, "num_cpus", num_cpus=-1),
    case(TypeError, "num_cpus", num_cpus="two"),
    case(ValueError, "num_gpus", num_gpus=-0.5),
    case(ValueError, "memory", memory=-1),
    case(TypeError, "memory", memory="1GB"),
    case(TypeError, "resources", resources=["a"]),
    case(ValueError, "negative", resources={"a": -1}),
    case(ValueError, "CPU", resources={"CPU": 1}),
    case(ValueError, "GPU", resources={"GPU": 1}),
    case(ValueError, "num_returns", num_returns=-1),
    case(TypeError, "num_returns", num_returns=1.5),
    case(ValueError, "num_returns", num_returns="many"),
    case(ValueError, "max_retries", max_retries=-2),
    case(TypeError, "max_retries", max_retries="often"),
    case(TypeError, "retry_exceptions", retry_exceptions="all"),
    case(ValueError, "retry_exceptions", retry_exceptions=[1]),
    case(ValueError, "max_calls", max_calls=-1),
    case(TypeError, "name", name=3),
    case(TypeError, "runtime_env", runtime_env="env"),
    case(ValueError, "RANDOM", scheduling_strategy="RANDOM"),
    case(TypeError, "scheduling_strategy", scheduling_strategy=3),
    case(TypeError, "accelerator_type", accelerator_type=3),
    case(ValueError, "max_concurrency", max_concurrency=2),
    case(ValueError, "backpressure", _generator_backpressure_num_objects=0),
]


@pytest.mark.parametrize(("options", "error", "words"), TASK_MISTAKES)
def test_a_wrong_task_option_is_refused_in_the_decorator(options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        skate.remote(**options)(function)


@pytest.mark.parametrize(("options", "error", "words"), TASK_MISTAKES[:12])
def test_a_wrong_task_option_is_refused_in_options(options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        skate.remote(function).options(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        case(ValueError, "max_restart", max_restart=1),
        case(ValueError, "max_restarts", max_restarts=-2),
        case(TypeError, "max_restarts", max_restarts=1.5),
        case(ValueError, "max_task_retries", max_task_retries=-2),
        case(ValueError, "max_concurrency", max_concurrency=-1),
        case(TypeError, "max_concurrency", max_concurrency="10"),
        case(ValueError, "max_pending_calls", max_pending_calls=-2),
        case(ValueError, "lifetime", lifetime="long"),
        case(TypeError, "lifetime", lifetime=3),
        case(TypeError, "namespace", namespace=3),
        case(ValueError, "num_returns", num_returns=2),
        case(ValueError, "max_retries", max_retries=2),
        case(ValueError, "max_calls", max_calls=2),
        case(ValueError, "num_cpus", num_cpus=-1),
    ],
)
def test_a_wrong_actor_option_is_refused(options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        skate.remote(Class).options(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        case((ValueError, TypeError), "num_return", num_return=2),
        case((ValueError, TypeError), "num_cpus", num_cpus=2),
        case(TypeError, "max_task_retries", max_task_retries="x"),
    ],
)
def test_a_wrong_option_of_the_method_decorator_is_refused(options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        skate.method(**options)(Class.method)


def test_an_unknown_option_names_the_closest_one() -> None:
    with pytest.raises(ValueError, match="num_cpus"):
        skate.remote(num_cpu=1)(function)


@pytest.mark.parametrize("thing", [1, "f", None, []], ids=repr)
def test_remote_takes_functions_and_classes_only(thing: Any) -> None:
    with pytest.raises(TypeError):
        skate.remote(thing)


def test_remote_takes_only_keywords_as_options() -> None:
    with pytest.raises(TypeError):
        skate.remote(1, 2)


def test_too_few_arguments_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="a"):
        skate.remote(function).remote()


def test_too_many_arguments_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError):
        skate.remote(function).remote(1, 2, 3)


def test_an_unknown_keyword_argument_is_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="c"):
        skate.remote(function).remote(1, c=2)


def test_wrong_constructor_arguments_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError):
        skate.remote(Class).remote(1, 2, 3)


def test_wrong_method_arguments_are_refused_at_the_call() -> None:
    actor = skate.remote(Class).remote()
    with pytest.raises(TypeError):
        actor.method.remote(1, 2, 3)


@pytest.mark.parametrize("thing", [1, "ref", None, {"a": 1}], ids=repr)
def test_get_refuses_what_is_not_a_ref(thing: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        skate.get(thing)


def test_get_refuses_a_list_with_something_else_in_it() -> None:
    with pytest.raises((TypeError, ValueError)):
        skate.get([skate.put(1), 2])


def test_get_refuses_a_negative_timeout() -> None:
    with pytest.raises(ValueError, match="timeout"):
        skate.get(skate.put(1), timeout=-5)


def test_wait_refuses_a_single_ref() -> None:
    with pytest.raises(TypeError, match="list"):
        skate.wait(skate.put(1))


def test_wait_refuses_what_is_not_a_ref() -> None:
    with pytest.raises(TypeError):
        skate.wait([1])


def test_wait_refuses_the_same_ref_twice() -> None:
    ref = skate.put(1)
    with pytest.raises(ValueError, match=r"(?i)duplicate|unique"):
        skate.wait([ref, ref])


@pytest.mark.parametrize("count", [0, -1, 3])
def test_wait_refuses_a_count_it_cannot_return(count: int) -> None:
    with pytest.raises(ValueError, match=r"num_returns|number of objects"):
        skate.wait([skate.put(1), skate.put(2)], num_returns=count)


def test_wait_refuses_a_negative_timeout() -> None:
    with pytest.raises(ValueError, match="timeout"):
        skate.wait([skate.put(1)], timeout=-1)


def test_kill_takes_only_handles() -> None:
    with pytest.raises(ValueError, match=r"(?i)actor"):
        skate.kill(skate.put(1))


def test_get_actor_refuses_an_empty_name() -> None:
    with pytest.raises(ValueError, match=r"name|non-empty"):
        skate.get_actor("")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        case(ValueError, "-1", num_cpus=-1),
        case(ValueError, "-1", num_gpus=-1),
        case(ValueError, "negative", resources={"a": -1}),
        case(ValueError, "CPU", resources={"CPU": 1}),
        case(ValueError, "object.store.memory", object_store_memory=-1),
        case(ValueError, "bad key!", labels={"bad key!": "x"}),
        case(TypeError, "namespace", namespace=3),
        case((TypeError, ValueError, RuntimeError), "no_such_option", no_such_option=1),
        case(ValueError, "(?s)steam.*local", engine="steam"),
    ],
)
def test_a_wrong_init_argument_is_refused(
    fresh: Start, engine_name: str, options: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        skate.init(**{"engine": engine_name, **options})
    assert not skate.is_initialized()


def test_a_session_starts_after_a_refused_init(fresh: Start, engine_name: str) -> None:
    with pytest.raises(ValueError, match="-1"):
        skate.init(engine=engine_name, num_cpus=-1)
    fresh()
    assert skate.get(skate.put(1)) == 1


def test_a_generator_argument_is_refused_with_its_path() -> None:
    with pytest.raises(TypeError, match="generator"):
        skate.remote(function).remote(x for x in ())
