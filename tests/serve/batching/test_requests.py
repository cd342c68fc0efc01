"""Batches and their requests, inside replicas."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import pickle
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from skate.serve import context
from skate.serve._batching.batches import batch_requests
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve.batching import batch
from skate.serve.context import ReplicaContext, _RequestContext
from skate.util import metrics
from skate.util._metrics_store import Store
from skate.util.metrics import prometheus_text
from tests.serve.batching.recorder import LONG, Recorder, settled


class TestRequests:
    @staticmethod
    async def within(request: _RequestContext, call: Callable[[], Awaitable[Any]]) -> Any:
        context._request.set(request)
        return await call()

    async def test_a_batch_knows_its_requests_and_is_of_none_of_them(self) -> None:
        seen = []

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[int]:
            seen.append(([request.request_id for request in batch_requests()], context._get_request()))
            return items

        requests = [_RequestContext(request_id=name) for name in "ab"]
        calls = [asyncio.create_task(self.within(request, lambda: look(1))) for request in requests]
        await asyncio.gather(*calls)
        assert seen == [(["a", "b"], None)]
        assert batch_requests() == ()

    async def test_requests_for_different_models_run_side_by_side(self) -> None:
        gate = asyncio.Event()
        seen = []

        @batch(max_batch_size=4, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[str]:
            seen.append(items)
            await gate.wait()
            model = batch_requests()[0].multiplexed_model_id
            return [f"{model}{item}" for item in items]

        models = ["x", "y", "x", "x"]
        calls = [
            asyncio.create_task(
                self.within(_RequestContext(multiplexed_model_id=model), functools.partial(look, i))
            )
            for i, model in enumerate(models)
        ]
        await settled()
        assert seen == [[0, 2, 3], [1]]
        gate.set()
        assert await asyncio.gather(*calls) == ["x0", "y1", "x2", "x3"]

    async def test_the_parts_of_a_split_batch_take_one_place_together(self) -> None:
        running, most = 0, 0

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def look(items: list[int]) -> list[int]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await settled()
            running -= 1
            return items

        calls = [
            asyncio.create_task(
                self.within(_RequestContext(multiplexed_model_id=model), functools.partial(look, i))
            )
            for i, model in enumerate("abab")
        ]
        assert await asyncio.gather(*calls) == [0, 1, 2, 3]
        assert most == 2

    async def test_a_batch_runs_in_the_context_of_its_first_caller(self) -> None:
        user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG)
        async def whoami(items: list[int]) -> list[str]:
            name = user.get()
            user.set("changed")
            return [name] * len(items)

        async def call(name: str) -> tuple[str, str]:
            user.set(name)
            return await whoami(1), user.get()

        assert await asyncio.gather(call("ann"), call("bob")) == [("ann", "ann"), ("ann", "bob")]


class TestLookingIn:
    async def test_running_batches_can_be_seen(self) -> None:
        recorder = Recorder()
        double: Any = recorder.double
        assert await double._is_batching_task_alive()
        assert double._get_curr_iteration_start_times().start_times == []
        recorder.gate.clear()
        calls = [asyncio.create_task(recorder.double(i)) for i in range(3)]
        await settled()
        times = pickle.loads(pickle.dumps(double._get_curr_iteration_start_times()))
        assert times.num_requests == 1
        assert times.min_start_time == times.mean_start_time == times.max_start_time
        assert "_run" in await double._get_handling_task_stack()
        recorder.gate.set()
        await asyncio.gather(*calls)
        assert double._get_curr_iteration_start_times().max_start_time is None
        assert await double._get_handling_task_stack() == ""


class TestInAReplica:
    @pytest.fixture(autouse=True)
    def replica(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        fresh = Store(lambda: None)
        monkeypatch.setattr(metrics, "store", fresh)
        replica_id = ReplicaID("abc", DeploymentID("Model", "shop"))
        config = SimpleNamespace(max_ongoing_requests=4)
        monkeypatch.setattr(context, "_process_replica", ReplicaContext(replica_id, None, config))
        yield
        fresh.detach()

    async def test_batches_are_measured(self) -> None:
        @batch(max_batch_size=4, batch_wait_timeout_s=0.001)
        async def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]

        await asyncio.gather(*(double(i) for i in range(5)))
        text = prometheus_text()
        tags = 'application="shop",deployment="Model",function_name="double"'
        assert f'skate_serve_batches_processed_total{{{tags},replica="abc"}} 2.0' in text
        assert f'skate_serve_actual_batch_size_sum{{{tags},replica="abc"}} 5.0' in text
        assert f'skate_serve_batch_utilization_percent_sum{{{tags},replica="abc"}} 125.0' in text
        for name in ("wait", "execution"):
            assert f'skate_serve_batch_{name}_time_ms_count{{{tags},replica="abc"}} 2' in text
        (queued,) = (line for line in text.splitlines() if line.startswith("skate_serve_batch_queue_length{"))
        assert queued.endswith(" 0.0")

    async def test_batches_that_the_deployment_never_fills_are_warned_of(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        @batch(max_batch_size=4, batch_wait_timeout_s=0)
        async def double(items: list[int]) -> list[int]:
            return [2 * item for item in items]

        assert await double(1) == 2
        assert caplog.text == ""
        double.set_max_batch_size(5)
        assert "max_batch_size=5 times max_concurrent_batches=1 is more" in caplog.text
        assert "Set max_ongoing_requests to at least 5" in caplog.text
