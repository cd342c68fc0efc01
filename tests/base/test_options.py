"""Task and actor options: accepted values, errors and defaults."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from skate._base.options import (
    ActorOptions,
    MethodOptions,
    TaskOptions,
    check_num_returns,
    default_max_retries,
)


class PlacementGroup:
    """Stands in for the class of that name two layers up."""


NONE = type(None)


@pytest.mark.parametrize("kind", [TaskOptions, ActorOptions, MethodOptions])
def test_nothing_given_is_nothing_given(kind: type[TaskOptions]) -> None:
    assert kind.parse({}).given() == {}
    assert kind().given() == {}


def test_keywords_come_back_as_they_were_written() -> None:
    written = {"num_cpus": 2, "resources": {"disk": 1}, "_labels": {"a": "b"}, "_num_objects_per_yield": 2}
    assert TaskOptions.parse(written).given() == written
    cap = {"_actor_generator_backpressure_num_objects": 3, "name": "a", "get_if_exists": True}
    assert ActorOptions.parse(cap).given() == cap


@pytest.mark.parametrize(
    ("kind", "keyword", "types"),
    [
        (TaskOptions, "max_retries", (int, NONE)),
        (TaskOptions, "max_calls", (int, NONE)),
        (TaskOptions, "num_returns", (int, str, NONE)),
        (ActorOptions, "max_restarts", (int, NONE)),
        (ActorOptions, "max_task_retries", (int, NONE)),
        (ActorOptions, "get_if_exists", bool),
    ],
)
def test_a_value_of_the_wrong_type_names_the_right_ones(
    kind: type[TaskOptions], keyword: str, types: object
) -> None:
    expected = f"The type of keyword '{keyword}' must be {types}, but received type {float}"
    with pytest.raises(TypeError, match=re.escape(expected)):
        kind.parse({keyword: 0.5})


@pytest.mark.parametrize("keyword", list(TaskOptions.RULES))
def test_every_task_option_rejects_a_strange_object(keyword: str) -> None:
    with pytest.raises(TypeError, match=keyword):
        TaskOptions.parse({keyword: object()})


@pytest.mark.parametrize("keyword", list(ActorOptions.RULES))
def test_every_actor_option_rejects_a_strange_object(keyword: str) -> None:
    with pytest.raises(TypeError, match=keyword):
        ActorOptions.parse({keyword: object()})


def test_an_unknown_option_lists_the_valid_ones_and_the_closest() -> None:
    with pytest.raises(ValueError, match="Invalid option keyword num_cpu for remote functions") as caught:
        TaskOptions.parse({"num_cpu": 1})
    assert "Valid ones are ['label_selector'" in str(caught.value)
    assert "Did you mean 'num_cpus'?" in str(caught.value)
    with pytest.raises(ValueError, match="Invalid option keyword max_retries for actors"):
        ActorOptions.parse({"max_retries": 1})


@pytest.mark.parametrize("value", [-1, -50])
def test_max_calls_must_not_be_negative(value: int) -> None:
    with pytest.raises(
        ValueError, match="The keyword 'max_calls' only accepts None, 0 or a positive integer"
    ):
        TaskOptions.parse({"max_calls": value})


@pytest.mark.parametrize(
    ("kind", "keyword"),
    [(TaskOptions, "max_retries"), (ActorOptions, "max_restarts"), (ActorOptions, "max_pending_calls")],
)
def test_minus_one_is_infinity_where_infinity_makes_sense(kind: type[TaskOptions], keyword: str) -> None:
    assert kind.parse({keyword: -1}).given() == {keyword: -1}
    expected = f"The keyword '{keyword}' only accepts None, 0, -1 or a positive integer, where -1 represents"
    with pytest.raises(ValueError, match=expected):
        kind.parse({keyword: -2})


@pytest.mark.parametrize("value", [-1, "lazily"])
def test_num_returns_is_a_count_or_streaming(value: object) -> None:
    expected = f"only accepts None, a non-negative integer, .* got {value!r}"
    with pytest.raises(ValueError, match=expected):
        TaskOptions.parse({"num_returns": value})
    for good in (None, 0, 3, "streaming", "dynamic"):
        assert TaskOptions.parse({"num_returns": good}).num_returns == good


@pytest.mark.filterwarnings("ignore:placement_group parameter is deprecated")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 1e-7}, "quantity of resource num_gpus cannot go beyond 0.0001; it is 1e-07"),
        (
            {"resources": {"disk": 1e-7}},
            "quantity of resource disk cannot go beyond 0.0001; it is 1e-07",
        ),
        ({"num_cpus": -1}, "The quantity of resource num_cpus cannot be negative"),
        ({"resources": {"disk": -1}}, "The quantity of resource disk cannot be negative"),
        ({"memory": float("nan")}, "memory must be finite"),
        ({"resources": {"disk": "much"}}, "disk must be a number"),
        ({"resources": {3: 1}}, "must be a string"),
        ({"resources": {"CPU": 1}}, "Use the 'num_cpus' and 'num_gpus' keyword"),
        ({"resources": {"GPU": 1}}, "Use the 'num_cpus' and 'num_gpus' keyword"),
        ({"resources": {"memory": 1}}, "pass memory=1"),
        ({"object_store_memory": 1}, "Tasks have no option object_store_memory"),
        (
            {"retry_exceptions": [3]},
            "retry_exceptions is True, False or a list of subclasses of Exception, not [3]",
        ),
        ({"_generator_backpressure_num_objects": 0}, "backpressure_num_objects=0 is not allowed"),
        ({"_num_objects_per_yield": 0}, "_num_objects_per_yield"),
        ({"label_selector": {"-a": "b"}}, "Invalid label key name"),
        ({"fallback_strategy": [{}]}, "fallback_strategy has an empty dictionary"),
        (
            {"placement_group": PlacementGroup(), "scheduling_strategy": "SPREAD"},
            "Placement groups should be specified via",
        ),
    ],
)
def test_a_bad_value_of_a_task_option_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TaskOptions.parse(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lifetime": "forever"}, "is None, 'detached' or 'non_detached', not 'forever'"),
        ({"get_if_exists": True}, "must be specified to use `get_if_exists`"),
        ({"name": ""}, "Actor name cannot be an empty string"),
        ({"namespace": ""}, "A namespace cannot be the empty string"),
        ({"max_concurrency": -1}, "The keyword 'max_concurrency' only accepts None, 0 or a positive"),
        (
            {"_actor_generator_backpressure_num_objects": 0},
            "num_objects must be > 0, or -1 for no limit; got 0",
        ),
    ],
)
def test_a_bad_value_of_an_actor_option_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ActorOptions.parse(options)


def test_the_constructor_checks_too() -> None:
    with pytest.raises(ValueError, match="num_cpus cannot be negative"):
        TaskOptions(num_cpus=-1)
    with pytest.raises(TypeError, match="max_task_retries"):
        MethodOptions(max_task_retries="often")  # type: ignore[arg-type]


def test_options_cannot_be_changed() -> None:
    options = TaskOptions()
    with pytest.raises(AttributeError, match="cannot be changed"):
        options.num_cpus = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="cannot be changed"):
        del options.num_cpus


def test_the_constructor_takes_only_fields() -> None:
    with pytest.raises(TypeError, match="TaskOptions has no field 'num_cpu'"):
        TaskOptions(num_cpu=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        TaskOptions(3)  # type: ignore[call-arg, arg-type]


def test_merged_options_override_and_leave_the_original_alone() -> None:
    declared = TaskOptions.parse(
        {"num_cpus": 2, "resources": {"a": 1}, "runtime_env": {"env_vars": {"A": "1"}}}
    )
    called = declared.merged({"resources": {"b": 1}, "runtime_env": {"working_dir": "."}})
    assert called.given() == {"num_cpus": 2, "resources": {"b": 1}, "runtime_env": {"working_dir": "."}}
    assert declared.custom_resources == {"a": 1}


def test_none_takes_an_option_back() -> None:
    assert TaskOptions.parse({"num_gpus": 1}).merged({"num_gpus": None}).given() == {}


def test_merging_nothing_gives_the_same_object() -> None:
    options = TaskOptions.parse({"num_cpus": 2})
    assert options.merged({}) is options


def test_some_options_can_only_be_declared() -> None:
    with pytest.raises(ValueError, match=re.escape("Setting 'max_calls' is not supported in '.options()'.")):
        TaskOptions().merged({"max_calls": 1})
    with pytest.raises(ValueError, match="Setting 'concurrency_groups' is not supported"):
        ActorOptions().merged({"concurrency_groups": []})


def test_the_number_of_objects_per_yield_cannot_change_per_call() -> None:
    with pytest.raises(ValueError, match="_num_objects_per_yield cannot be overridden"):
        TaskOptions().merged({"_num_objects_per_yield": 2})
    assert TaskOptions().merged({"_num_objects_per_yield": 1}).effective_num_objects_per_yield == 1


@pytest.mark.filterwarnings("ignore:placement_group parameter is deprecated")
def test_two_ways_to_place_exclude_each_other() -> None:
    declared = TaskOptions.parse({"placement_group": PlacementGroup()})
    with pytest.raises(ValueError, match="should be specified via"):
        declared.merged({"scheduling_strategy": "SPREAD"})
    assert declared.merged({"placement_group": None, "scheduling_strategy": "SPREAD"}).given() == {
        "placement_group": None,
        "scheduling_strategy": "SPREAD",
    }


def test_outdated_options_warn() -> None:
    with pytest.warns(DeprecationWarning, match="placement_group parameter is deprecated"):
        TaskOptions.parse({"placement_group": PlacementGroup()})
    with pytest.warns(DeprecationWarning, match="'object_store_memory' for actors is deprecated"):
        ActorOptions.parse({"object_store_memory": 1})


def test_no_placement_group_differs_from_none_given() -> None:
    assert TaskOptions.parse({"placement_group": None}).placement_group is None
    assert TaskOptions().placement_group == "default"


def test_resources_gather_every_keyword() -> None:
    options = TaskOptions.parse(
        {"num_cpus": 0.5, "num_gpus": 1, "memory": 100, "resources": {"disk": 2}, "accelerator_type": "T4"}
    )
    assert options.resources() == {
        "CPU": 0.5,
        "GPU": 1.0,
        "memory": 100.0,
        "disk": 2.0,
        "accelerator_type:T4": 0.001,
    }


def test_resources_fall_back_to_the_default_cpus() -> None:
    assert TaskOptions().resources(default_cpus=1) == {"CPU": 1.0}
    assert TaskOptions().resources(default_cpus=None) == {}
    assert TaskOptions(num_cpus=0).resources(default_cpus=1) == {}


def test_an_actor_that_asks_for_nothing_holds_nothing_but_needs_a_cpu_to_start() -> None:
    options = ActorOptions()
    assert options.effective_resources == {}
    assert options.placement_resources == {"CPU": 1.0}
    assert ActorOptions(memory=100).effective_resources == {"memory": 100.0}


def test_an_actor_that_asks_for_a_custom_resource_also_holds_a_cpu() -> None:
    assert ActorOptions(custom_resources={"x": 1}).effective_resources == {"CPU": 1.0, "x": 1.0}
    assert ActorOptions(num_cpus=0, num_gpus=1).effective_resources == {"GPU": 1.0}


def test_a_task_that_uses_a_gpu_gets_a_new_worker_each_time() -> None:
    assert TaskOptions(num_gpus=0.5).effective_max_calls == 1
    assert TaskOptions(num_gpus=0.5, max_calls=0).effective_max_calls == 0
    assert TaskOptions().effective_max_calls == 0


def test_the_environment_sets_how_often_tasks_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKATE_TASK_MAX_RETRIES", raising=False)
    monkeypatch.delenv("RAY_TASK_MAX_RETRIES", raising=False)
    assert TaskOptions().effective_max_retries == 3
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "5")
    assert TaskOptions().effective_max_retries == 5
    monkeypatch.setenv("SKATE_TASK_MAX_RETRIES", "0")
    assert TaskOptions().effective_max_retries == 0
    assert TaskOptions(max_retries=-1).effective_max_retries == -1
    monkeypatch.setenv("SKATE_TASK_MAX_RETRIES", "some")
    with pytest.raises(ValueError, match="SKATE_TASK_MAX_RETRIES must be an integer"):
        default_max_retries()


def test_what_holds_when_nothing_is_given() -> None:
    task, actor, method = TaskOptions(), ActorOptions(), MethodOptions()
    assert task.effective_retry_exceptions is False
    assert task.effective_generator_backpressure_num_objects == -1
    assert task.effective_placement_group_bundle_index == -1
    assert (actor.effective_max_restarts, actor.effective_max_task_retries) == (0, 0)
    assert actor.effective_max_pending_calls == -1
    assert actor.effective_actor_generator_backpressure_num_objects == -1
    assert not actor.is_detached
    assert actor.effective_max_concurrency(is_async=True) == 1000
    assert actor.effective_max_concurrency(is_async=False) == 1
    assert method.effective_num_objects_per_yield == 1
    assert method.effective_enable_task_events


def test_retried_exceptions_become_a_tuple() -> None:
    assert TaskOptions.parse({"retry_exceptions": [ValueError]}).effective_retry_exceptions == (ValueError,)
    assert MethodOptions.parse({"retry_exceptions": True}).effective_retry_exceptions is True


def test_a_pickle_carries_only_what_was_given() -> None:
    options = ActorOptions.parse({"max_restarts": 2, "_labels": {"a": "b"}, "placement_group": None})
    assert options.effective_resources == {}  # cached, and not pickled
    copy = pickle.loads(pickle.dumps(options))
    assert copy.given() == options.given()
    assert "effective_resources" not in vars(copy)
    assert repr(copy) == "ActorOptions(max_restarts=2, labels={'a': 'b'}, placement_group=None)"


def test_options_are_equal_only_to_themselves() -> None:
    options = TaskOptions(num_cpus=1)
    assert {options: 1}[options] == 1
    assert options != TaskOptions(num_cpus=1)


def test_streaming_needs_a_generator() -> None:
    check_num_returns("streaming", is_generator=True)
    check_num_returns(2, is_generator=False)
    with pytest.raises(ValueError, match="can only be used with generators"):
        check_num_returns("streaming", is_generator=False)
    with pytest.warns(DeprecationWarning, match="Use num_returns='streaming' instead"):
        check_num_returns("dynamic", is_generator=True)


@pytest.mark.parametrize("options", [{"num_gpus": 1.5}, {"resources": {"TPU": 2.5}}])
def test_a_part_of_a_device_on_top_of_whole_ones_is_refused(options: dict[str, Any]) -> None:
    parsed = TaskOptions.parse(options)
    with pytest.raises(ValueError, match="must be whole numbers"):
        parsed.resources()


@pytest.mark.parametrize("options", [{"num_gpus": 0.5}, {"num_gpus": 2.0}, {"num_cpus": 1.5}])
def test_other_parts_are_fine(options: dict[str, Any]) -> None:
    assert list(TaskOptions.parse(options).resources().values()) == list(options.values())


def test_memory_is_counted_in_whole_bytes() -> None:
    assert TaskOptions.parse({"memory": 2.9}).resources() == {"memory": 2.0}
    assert TaskOptions.parse({"memory": 0.5}).resources() == {}
