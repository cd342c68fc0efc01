from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import cloudpickle
import pytest

from skate.serve import context
from skate.serve._multiplex import registry as registries
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve.batching import batch
from skate.serve.context import ReplicaContext, _RequestContext
from skate.serve.multiplex import (
    get_multiplexed_model_id,
    loaded_model_ids,
    multiplexed,
    on_change,
    unload_models,
)
from skate.util import metrics
from skate.util._metrics_store import Store
from skate.util.metrics import prometheus_text


async def settled() -> None:
    """Let everything run that is ready to run."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registries, "_registries", {})
    token = context._request.set(None)
    yield
    context._request.reset(token)


@pytest.fixture(autouse=True)
async def no_tasks_are_left() -> AsyncIterator[None]:
    yield
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Models:
    """Loads words, and writes down which; a load waits for `gate`."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @multiplexed(max_num_models_per_replica=2)
    async def get(self, model_id: str) -> str:
        self.loads.append(model_id)
        await self.gate.wait()
        if model_id == "bad":
            raise FileNotFoundError(model_id)
        return model_id.upper()

    @multiplexed(max_num_models_per_replica=-1)
    async def get_any(self, model_id: str) -> str:
        return model_id


class TestKeeping:
    async def test_a_model_is_loaded_once_and_kept(self) -> None:
        models = Models()
        assert [await models.get("a") for _ in range(3)] == ["A"] * 3
        assert models.loads == ["a"]

    async def test_the_one_that_was_not_used_for_longest_makes_room(self) -> None:
        models = Models()
        for model_id in ("a", "b", "a", "c"):
            await models.get(model_id)
        assert loaded_model_ids() == {"a", "c"}
        await models.get("a")
        assert models.loads == ["a", "b", "c"]
        await models.get("b")
        assert loaded_model_ids() == {"a", "b"}

    async def test_any_number_may_be_kept(self) -> None:
        models = Models()
        ids = [str(i) for i in range(50)]
        assert await asyncio.gather(*(models.get_any(each) for each in ids)) == ids
        assert loaded_model_ids() == set(ids)

    async def test_callers_that_ask_at_once_share_a_load(self) -> None:
        models = Models()
        models.gate.clear()
        calls = [asyncio.create_task(models.get("a")) for _ in range(5)]
        await settled()
        models.gate.set()
        assert await asyncio.gather(*calls) == ["A"] * 5
        assert models.loads == ["a"]

    async def test_models_load_side_by_side_as_far_as_there_is_room(self) -> None:
        models = Models()
        models.gate.clear()
        calls = [asyncio.create_task(models.get(model_id)) for model_id in "abc"]
        await settled()
        assert models.loads == ["a", "b"]
        assert loaded_model_ids() == {
            "a",
            "b",
            "c",
        }  # the third has been asked for, and requests should come here
        models.gate.set()
        assert await asyncio.gather(*calls) == ["A", "B", "C"]
        assert loaded_model_ids() == {"b", "c"}

    async def test_each_object_keeps_models_of_its_own(self) -> None:
        one, other = Models(), Models()
        await one.get("a")
        await other.get("b")
        assert (one.loads, other.loads) == (["a"], ["b"])
        twin = copy.copy(one)
        twin.loads = []
        await twin.get("a")
        assert twin.loads == ["a"]

    async def test_a_function_keeps_models_too(self) -> None:
        @multiplexed
        async def get(model_id: str) -> str:
            return model_id * 2

        assert await get("a") == "aa"
        assert await get(model_id="b") == "bb"
        assert loaded_model_ids() == {"a", "b"}

    async def test_functions_and_objects_travel_without_their_models(self) -> None:
        @multiplexed
        async def get(model_id: str) -> object:
            return object()

        class Holder:
            @multiplexed
            async def get(self, model_id: str) -> object:
                return object()

        here = await get("a")
        assert await pickle.loads(cloudpickle.dumps(get))("a") is not here
        holder = Holder()
        assert await holder.get("a") is not await pickle.loads(cloudpickle.dumps(holder)).get("a")


class TestFailing:
    async def test_an_error_reaches_all_that_wait_and_is_not_kept(self) -> None:
        models = Models()
        models.gate.clear()
        calls = [asyncio.create_task(models.get("bad")) for _ in range(2)]
        await settled()
        models.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [FileNotFoundError] * 2
        assert loaded_model_ids() == set()
        with pytest.raises(FileNotFoundError):
            await models.get("bad")
        assert models.loads == ["bad", "bad"]

    async def test_a_failed_load_leaves_room_for_others(self) -> None:
        models = Models()
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                await models.get("bad")
        assert [await models.get(model_id) for model_id in "ab"] == ["A", "B"]
        assert loaded_model_ids() == {"a", "b"}

    async def test_a_caller_that_goes_leaves_the_load_to_the_others(self) -> None:
        models = Models()
        models.gate.clear()
        goes, stays = asyncio.create_task(models.get("a")), asyncio.create_task(models.get("a"))
        await settled()
        goes.cancel()
        await settled()
        models.gate.set()
        assert await stays == "A"
        assert goes.cancelled()

    async def test_a_load_that_nobody_waits_for_is_cancelled_and_the_next_begins_anew(self) -> None:
        models = Models()
        models.gate.clear()
        call = asyncio.create_task(models.get("a"))
        await settled()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert loaded_model_ids() == set()
        models.gate.set()
        assert await models.get("a") == "A"
        assert models.loads == ["a", "a"]

    async def test_a_load_that_waits_for_room_can_be_given_up(self) -> None:
        models = Models()
        models.gate.clear()
        calls = [asyncio.create_task(models.get(model_id)) for model_id in "abcd"]
        await settled()
        calls[2].cancel()
        await settled()
        models.gate.set()
        assert await asyncio.gather(calls[0], calls[1], calls[3]) == ["A", "B", "D"]
        assert models.loads == ["a", "b", "d"]

    async def test_what_a_load_calls_is_not_cancelled_with_the_request_that_began_it(self) -> None:
        @multiplexed
        async def get(model_id: str) -> Any:
            return context._get_request()

        request = _RequestContext(request_id="r", multiplexed_model_id="a")
        request.children.add("call of the request's own")
        context._request.set(request)
        inside = await get()
        assert (inside.request_id, inside.multiplexed_model_id, inside.children) == ("r", "a", set())
        assert context._get_request() is request


class TestLettingGo:
    async def test_a_model_is_finalised_once_before_the_next_is_loaded(self) -> None:
        events = []

        class Model:
            def __init__(self, model_id: str) -> None:
                self.model_id = model_id
                events.append(f"load {model_id}")

            def __del__(self) -> None:
                events.append(f"del {self.model_id}")

        @multiplexed(max_num_models_per_replica=1)
        async def get(model_id: str) -> Model:
            return Model(model_id)

        held = await get("a")
        await get("b")
        assert events == ["load a", "del a", "load b"]
        assert isinstance(held, Model)
        del held
        gc.collect()
        assert events == ["load a", "del a", "load b"]
        await unload_models()
        assert events[3:] == ["del b"]

    async def test_the_end_of_a_model_may_be_async(self) -> None:
        events = []

        class Model:
            def __init__(self, model_id: str) -> None:
                self.model_id = model_id

            async def __del__(self) -> None:
                await asyncio.sleep(0)
                events.append(self.model_id)

        @multiplexed(max_num_models_per_replica=1)
        async def get(model_id: str) -> Model:
            return Model(model_id)

        await get("a")
        await get("b")
        assert events == ["a"]
        await unload_models()
        assert events == ["a", "b"]
        gc.collect()  # where a coroutine that nobody awaits would make itself heard

    async def test_an_error_at_the_end_reaches_whoever_needed_the_room(self) -> None:
        class Model:
            def __del__(self) -> None:
                raise OSError("device is gone")

        @multiplexed(max_num_models_per_replica=1)
        async def get(model_id: str) -> Any:
            return Model() if model_id == "a" else model_id

        await get("a")
        with pytest.raises(OSError, match="device is gone"):
            await get("b")
        assert loaded_model_ids() == set()
        assert await get("b") == "b"

    async def test_all_models_of_a_replica_can_be_unloaded(self, caplog: pytest.LogCaptureFixture) -> None:
        class Model:
            def __init__(self, model_id: str) -> None:
                self.model_id = model_id

            def __del__(self) -> None:
                if self.model_id == "a":
                    raise OSError("device is gone")
                events.append(self.model_id)

        events: list[str] = []

        class Holder:
            @multiplexed
            async def get(self, model_id: str) -> Model:
                if model_id == "slow":
                    await asyncio.Event().wait()
                return Model(model_id)

        holder = Holder()
        await holder.get("a")
        await holder.get("b")
        slow = asyncio.create_task(holder.get("slow"))
        await settled()
        await unload_models()
        assert events == ["b"]
        assert "unloading model 'a' failed" in caplog.text
        assert loaded_model_ids() == set()
        with pytest.raises(asyncio.CancelledError):
            await slow

    async def test_a_class_that_counts_its_subclasses_is_left_alone(self) -> None:
        subclasses = []

        class Model:
            def __init_subclass__(cls) -> None:
                subclasses.append(cls)

            def __del__(self) -> None:
                pass

        @multiplexed(max_num_models_per_replica=1)
        async def get(model_id: str) -> Model:
            return Model()

        await get("a")
        await get("b")
        assert subclasses == []


class TestTelling:
    async def test_listeners_learn_of_each_change(self) -> None:
        told: list[frozenset[str]] = []
        stop = on_change(told.append)
        models = Models()
        for model_id in ("a", "b", "a", "c"):
            await models.get(model_id)
        # "c" counts from when it is asked for, so that further requests for it come here.
        assert told == [{"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "c"}]
        stop()
        await models.get("d")
        assert len(told) == 4

    async def test_replicas_in_one_process_hold_models_of_their_own(self) -> None:
        async def replica(name: str) -> frozenset[str]:
            context._in_replica.set(ReplicaContext(ReplicaID(name, DeploymentID("Model")), None))
            told: list[frozenset[str]] = []
            on_change(told.append)
            models = Models()
            await models.get(name)
            assert told == [{name}]
            held = loaded_model_ids()
            await unload_models()
            assert told == [{name}, frozenset()]
            return held

        calls = [asyncio.create_task(replica(name)) for name in ("x", "y")]
        assert await asyncio.gather(*calls) == [{"x"}, {"y"}]

    async def test_models_are_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fresh = Store(lambda: None)
        monkeypatch.setattr(metrics, "store", fresh)
        replica = ReplicaContext(ReplicaID("abc", DeploymentID("Model", "shop")), None)
        monkeypatch.setattr(context, "_process_replica", replica)
        models = Models()
        for model_id in "abc":
            await models.get(model_id)
        text = prometheus_text()
        tags = 'application="shop",deployment="Model"'
        assert f'skate_serve_multiplexed_models_load_counter_total{{{tags},replica="abc"}} 3.0' in text
        assert f'skate_serve_multiplexed_models_unload_counter_total{{{tags},replica="abc"}} 1.0' in text
        assert f'skate_serve_multiplexed_model_load_latency_ms_count{{{tags},replica="abc"}} 3' in text
        (count,) = (
            line for line in text.splitlines() if line.startswith("skate_serve_num_multiplexed_models{")
        )
        assert count.endswith(" 2.0")
        fresh.detach()


class TestIds:
    async def test_the_id_may_come_from_the_request(self) -> None:
        assert get_multiplexed_model_id() == ""
        context._request.set(_RequestContext(multiplexed_model_id="m"))
        assert get_multiplexed_model_id() == "m"
        assert await Models().get() == "M"

    async def test_a_batch_is_for_the_model_of_its_requests(self) -> None:
        models = Models()

        @batch(max_batch_size=3)
        async def predict(items: list[int]) -> list[str]:
            model = await models.get(get_multiplexed_model_id())
            return [f"{model}{item}/{len(items)}" for item in items]

        async def request(model_id: str, item: int) -> str:
            context._request.set(_RequestContext(multiplexed_model_id=model_id))
            return await predict(item)

        calls = [asyncio.create_task(request(model_id, i)) for i, model_id in enumerate("aba")]
        assert await asyncio.gather(*calls) == ["A0/2", "B1/1", "A2/2"]

    @pytest.mark.parametrize("args", [(), ("",)])
    async def test_without_an_id_the_error_says_how_to_give_one(self, args: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="names no model") as error:
            await Models().get(*args)
        for way in ("serve_multiplexed_model_id", "handle.options(multiplexed_model_id=...)", "Models.get()"):
            assert way in str(error.value)

    async def test_an_id_is_a_string_and_the_only_argument(self) -> None:
        with pytest.raises(TypeError, match="must be a string, got 3"):
            await Models().get(3)
        with pytest.raises(TypeError, match="takes only the id of a model, got 2 arguments"):
            await Models().get("a", "b")


class TestDecorating:
    @pytest.mark.parametrize("value", ["1", 1.0, None, True])
    def test_the_limit_is_an_integer(self, value: Any) -> None:
        with pytest.raises(TypeError, match="max_num_models_per_replica is a number of models"):
            multiplexed(max_num_models_per_replica=value)

    @pytest.mark.parametrize("value", [0, -2])
    def test_the_limit_is_positive_or_none(self, value: int) -> None:
        with pytest.raises(ValueError, match=f"is {value}: give a positive number, or -1 for no limit"):
            multiplexed(max_num_models_per_replica=value)

    @pytest.mark.parametrize("bad", [3, lambda model_id: model_id, Models])
    def test_only_async_functions_are_taken(self, bad: Any) -> None:
        with pytest.raises(TypeError, match=r"@serve\.multiplexed"):
            multiplexed(bad)
        with pytest.raises(TypeError, match=r"@serve\.multiplexed"):
            multiplexed()(bad)

    def test_the_function_takes_an_id(self) -> None:
        async def none() -> None: ...

        async def many(self: Any, model_id: str, version: int) -> None: ...

        for function in (none, many):
            with pytest.raises(TypeError, match="takes the id of a model and nothing else"):
                multiplexed(function)
