"""Tasks through Celery, with a broker in memory; consumers run in threads."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skate.serve import task_processor
from skate.serve.async_inference_autoscaling_policy import AsyncInferenceAutoscalingPolicy
from skate.serve.config import AutoscalingConfig
from skate.serve.schema import CeleryAdapterConfig, TaskProcessorConfig, TaskResult
from skate.serve.task_consumer import instantiate_adapter_from_config
from skate.serve.task_processor import CeleryTaskProcessorAdapter

Configure = Callable[..., TaskProcessorConfig]


@pytest.fixture
def configure() -> Configure:
    """Return a function that makes configurations for queues that no other test has."""
    unique = uuid.uuid4().hex

    def make(
        queue: str = "main", broker: dict[str, Any] | None = None, **options: Any
    ) -> TaskProcessorConfig:
        adapter_config = CeleryAdapterConfig(
            **(broker or {"broker_url": "memory://", "backend_url": "cache+memory://"}),
            task_custom_config={"retry_backoff": False, "default_retry_delay": 0},
        )
        adapter_config.broker_transport_options = {
            "polling_interval": 0.01,
            **(adapter_config.broker_transport_options or {}),
        }
        options = {
            name: f"{value}-{unique}" if name.endswith("queue_name") else value
            for name, value in options.items()
        }
        return TaskProcessorConfig(queue_name=f"{queue}-{unique}", adapter_config=adapter_config, **options)

    return make


@pytest.fixture
def consume(configure: Configure) -> Iterator[Callable[..., CeleryTaskProcessorAdapter]]:
    """Return a function that starts a consumer."""
    started = []

    def start(
        handlers: dict[str, Callable[..., Any]], *, threads: int = 2, **options: Any
    ) -> CeleryTaskProcessorAdapter:
        adapter = CeleryTaskProcessorAdapter(configure(**options))
        adapter.initialize(threads)
        for name, handler in handlers.items():
            adapter.register_task_handle(handler, name)
        adapter.start_consumer()
        started.append(adapter)
        return adapter

    yield start
    ends = [threading.Thread(target=adapter.stop_consumer) for adapter in started]  # each takes its time
    for end in ends:
        end.start()
    for end in ends:
        end.join()


def ended(adapter: Any, task: TaskResult) -> TaskResult:
    """Wait until a task has ended; its result is kept in a file, which tells nobody."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found: TaskResult = adapter.get_task_status_sync(task.id)
        if found.status in ("SUCCESS", "FAILURE", "REVOKED"):
            return found
        time.sleep(0.01)
    raise TimeoutError(task)


def test_a_task_is_handled_and_its_result_kept(consume: Any, configure: Configure) -> None:
    consume({"double": lambda number, plus=0: 2 * number + plus})
    client = instantiate_adapter_from_config(configure())
    task = client.enqueue_task_sync("double", args=[4], kwargs={"plus": 1})
    assert task.created_at is not None
    assert ended(client, task).result == 9
    assert client.get_task_status_sync("never enqueued").status == "PENDING"


def test_a_failed_task_is_tried_again_and_put_aside(consume: Any, configure: Configure) -> None:
    tries = []

    def fail(number: int) -> None:
        tries.append(number)
        raise ValueError("on purpose")

    # In one thread: Celery sends a task anew before it notes that, and without a delay another thread may have noted
    # how that went by then.
    consume({"fail": fail}, threads=1, max_retries=2, failed_task_queue_name="failed")
    client = instantiate_adapter_from_config(configure())
    task = client.enqueue_task_sync("fail", args=[4])
    result = ended(client, task)
    assert (result.status, repr(result.result), tries) == ("FAILURE", "ValueError('on purpose')", [4, 4, 4])
    task_id, error, args, kwargs, einfo = taken(consume, "fail", "failed")
    assert (task_id, error, args, kwargs) == (task.id, "ValueError: on purpose", "[4]", "{}")
    assert "Traceback" in einfo


def test_a_task_that_nobody_knows_is_put_aside(consume: Any, configure: Configure) -> None:
    consume({"known": lambda: None}, unprocessable_task_queue_name="odd")
    client = instantiate_adapter_from_config(configure())
    task = client.enqueue_task_sync("unknown", args=[4])
    task_id, error, args, kwargs, _ = taken(consume, "unknown", "odd")
    assert (task_id, args, kwargs) == (task.id, "[4]", "{}")
    assert "LookupError: no consumer of the queue 'main-" in error
    assert "handles tasks called 'unknown'" in error


def taken(consume: Any, task: str, queue: str) -> list[Any]:
    """Return the arguments of the first task in a queue."""
    handled = threading.Event()
    seen: list[Any] = []

    def take(*args: Any) -> None:
        seen.extend(args)
        handled.set()

    consume({task: take}, queue=queue)
    assert handled.wait(60)
    return seen


def test_a_consumer_ends_what_it_has_begun_and_leaves_the_rest(
    consume: Any, configure: Configure, tmp_path: Path
) -> None:
    queue, results, control = (tmp_path / name for name in ("queue", "results", "control"))
    for folder in (queue, results, control):
        folder.mkdir()
    folders = {"data_folder_in": str(queue), "data_folder_out": str(queue), "control_folder": str(control)}
    broker = {
        "broker_url": "filesystem://",
        "backend_url": f"file://{results}",
        "broker_transport_options": folders,
    }
    client = instantiate_adapter_from_config(configure(broker=broker))
    for number in range(12):
        client.enqueue_task_sync("slow", args=[number])

    begun, go_on = threading.Event(), threading.Event()
    done = []

    def slow(number: int) -> None:
        begun.set()
        assert go_on.wait(60)
        done.append(number)

    adapter = consume({"slow": slow}, broker=broker)
    assert begun.wait(60)
    stopping = threading.Thread(target=adapter.stop_consumer)
    stopping.start()
    go_on.set()
    stopping.join()
    assert 0 < len(done) < 12
    bodies = [json.loads(path.read_text())["body"] for path in queue.iterdir()]
    left = [json.loads(b64decode(body))[0][0] for body in bodies]
    assert sorted(left + done) == list(range(12))


def test_a_consumer_that_ends_by_itself_is_started_again(
    consume: Any, configure: Configure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_processor, "_CONSUMER_RESTART_DELAY_S", 0.01)
    adapter = consume({"double": lambda number: 2 * number})
    client = instantiate_adapter_from_config(configure())
    ended(client, client.enqueue_task_sync("double", args=[1]))

    def break_down() -> None:
        raise SystemExit(1)

    with caplog.at_level(logging.ERROR, logger="skate.serve"):
        adapter._worker.consumer.call_soon(break_down)
        first = adapter._worker
        while adapter._worker is first:
            time.sleep(0.01)
        assert ended(client, client.enqueue_task_sync("double", args=[2])).result == 4
    assert "ended unexpectedly; restarting it" in caplog.text


def test_a_consumer_can_be_stopped_before_it_has_begun(consume: Any) -> None:
    consume({}).stop_consumer()


def test_two_consumers_in_one_process_do_not_mix(consume: Any, configure: Configure) -> None:
    consume({"who": lambda: "one"})
    consume({"who": lambda: "other"}, queue="other")
    clients = [instantiate_adapter_from_config(configure(queue=name)) for name in ("main", "other")]
    tasks = [client.enqueue_task_sync("who") for client in clients for _ in range(3)]
    results = [ended(clients[0], task).result for task in tasks]
    assert results == ["one"] * 3 + ["other"] * 3


def test_consumers_tell_how_they_are(consume: Any, configure: Configure) -> None:
    consume({"double": lambda number: 2 * number})
    client = instantiate_adapter_from_config(configure())
    ended(client, client.enqueue_task_sync("double", args=[1]))

    async def ask() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        task = await client.enqueue_task_async("double", args=[1])
        await client.cancel_task_async("no such task")
        assert (await client.get_task_status_async(task.id)).id == task.id
        return await client.health_check_async(), await client.get_metrics_async()

    ((answer,), stats) = asyncio.run(ask())
    ((name, state),) = answer.items()
    assert state == {"ok": "pong"}
    assert stats[name]["pool"]["max-concurrency"] == 2
    assert stats[name]["broker"]["transport"] == "memory"


def test_an_async_handler_is_refused(configure: Configure) -> None:
    async def handle() -> None: ...

    adapter = CeleryTaskProcessorAdapter(configure())
    adapter.initialize()
    with pytest.raises(NotImplementedError, match="handle is async: make it a synchronous function"):
        adapter.register_task_handle(handle)


def test_a_configuration_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be an instance of CeleryAdapterConfig, got \{'a': 1\}"):
        CeleryTaskProcessorAdapter(TaskProcessorConfig(queue_name="q", adapter_config={"a": 1}))


def test_without_celery_the_error_says_what_to_install(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "celery", None)
    with pytest.raises(ImportError, match="needs celery: pip install celery"):
        CeleryTaskProcessorAdapter(configure())


def test_a_policy_counts_the_tasks_that_wait(configure: Configure) -> None:
    config = configure()
    adapter = instantiate_adapter_from_config(config)
    for _ in range(6):
        adapter.enqueue_task_sync("work", args=[])
    policy = AsyncInferenceAutoscalingPolicy("memory://", config.queue_name, poll_interval_s=600)

    def wanted(replicas: int, requests: float = 0.0) -> Any:
        context: Any = SimpleNamespace(
            current_num_replicas=replicas,
            total_num_requests=requests,
            config=AutoscalingConfig(target_ongoing_requests=2, max_replicas=9),
        )
        return policy(context)

    wanted(1)  # asks the broker, and does not wait for the answer
    assert policy._poll is not None
    policy._poll.join(30)
    assert wanted(1) == (3, {"queue_length": 6})
    assert wanted(2, requests=4) == (5, {"queue_length": 6})
    assert wanted(0) == (1, {"queue_length": 6})
    unknown = AsyncInferenceAutoscalingPolicy("memory://", f"no-{config.queue_name}")
    unknown._ask()
    assert unknown._queue_length == 0
