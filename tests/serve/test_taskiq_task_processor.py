"""Tasks through taskiq, with a broker that keeps them in files; consumers run in threads."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate.serve import taskiq_task_processor
from skate.serve._runtime import taskiq_brokers
from skate.serve.schema import TaskProcessorConfig, TaskResult
from skate.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler
from skate.serve.taskiq_task_processor import TaskiqAdapterConfig, TaskiqTaskProcessorAdapter
from tests.serve.conftest import light

pytest.importorskip("taskiq")
BROKER = "tests.serve.folder_broker:FolderBroker"
Configure = Callable[..., TaskProcessorConfig]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that makes configurations."""
    monkeypatch.setattr(taskiq_task_processor, "_FIRST_RETRY_DELAY_S", 0.001)

    def make(queue: str = "main", **options: Any) -> TaskProcessorConfig:
        adapter_config = options.pop("adapter_config", None) or TaskiqAdapterConfig(
            broker_type=BROKER, broker_kwargs={"folder": str(tmp_path)}
        )
        return TaskProcessorConfig(
            queue_name=queue, adapter=TaskiqTaskProcessorAdapter, adapter_config=adapter_config, **options
        )

    return make


@pytest.fixture
def consume(configure: Configure) -> Iterator[Callable[..., TaskiqTaskProcessorAdapter]]:
    """Return a function that starts a consumer."""
    started: list[TaskiqTaskProcessorAdapter] = []

    def start(
        handlers: dict[str, Callable[..., Any]], *, threads: int = 2, **options: Any
    ) -> TaskiqTaskProcessorAdapter:
        adapter = TaskiqTaskProcessorAdapter(configure(**options))
        adapter.initialize(threads)
        for name, handler in handlers.items():
            adapter.register_task_handle(handler, name)
        adapter.start_consumer()
        started.append(adapter)
        return adapter

    yield start
    for adapter in started:
        adapter.stop_consumer()


@pytest.fixture
def client(configure: Configure) -> Iterator[Any]:
    """Return an adapter that enqueues tasks."""
    adapter: Any = instantiate_adapter_from_config(configure())
    yield adapter
    adapter.stop_consumer()


def ended(adapter: Any, task: TaskResult) -> TaskResult:
    """Wait until a task has ended; the broker does not tell when that is."""
    return until(lambda: adapter.get_task_status_sync(task.id), lambda found: found.status != "PENDING")


def until(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 60
    while not is_right(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


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


def test_a_task_is_handled_and_its_result_kept(consume: Any, client: Any) -> None:
    consume({"double": lambda number, plus=0: 2 * number + plus})
    task = client.enqueue_task_sync("double", args=[4], kwargs={"plus": 1})
    assert (task.status, task.created_at is not None) == ("PENDING", True)
    assert ended(client, task).result == 9
    assert ended(client, task).status == "SUCCESS"
    assert client.get_task_status_sync("never enqueued").status == "PENDING"


def test_a_handler_may_be_async(consume: Any, client: Any) -> None:
    meeting = asyncio.Event()

    async def first() -> str:
        await meeting.wait()
        return "met"

    async def second() -> None:
        meeting.set()

    consume({"first": first, "second": second})
    tasks = [client.enqueue_task_sync(name) for name in ("first", "second")]
    assert ended(client, tasks[0]).result == "met"


def test_arguments_keep_their_types_whatever_the_annotations(consume: Any, client: Any) -> None:
    def describe(number: str, unknown: NotDefined = None) -> str:  # type: ignore[name-defined]  # noqa: F821
        return type(number).__name__

    consume({"describe": describe})
    assert ended(client, client.enqueue_task_sync("describe", args=[4])).result == "int"


def test_a_failed_task_is_tried_again_and_put_aside(consume: Any, client: Any) -> None:
    tries = []

    def fail(number: int) -> None:
        tries.append(number)
        raise ValueError("on purpose")

    adapter = consume({"fail": fail}, max_retries=2, failed_task_queue_name="failed")
    task = client.enqueue_task_sync("fail", args=[4])
    result = ended(client, task)
    assert (result.status, repr(result.result), tries) == ("FAILURE", "ValueError('on purpose')", [4, 4, 4])
    task_id, error, args, kwargs, trace = taken(consume, "fail", "failed")
    assert (task_id, error, args, kwargs) == (task.id, "ValueError: on purpose", "[4]", "{}")
    assert 'raise ValueError("on purpose")' in trace
    metrics = adapter.get_metrics_sync()
    assert (metrics["failed"], metrics["retried"], metrics["succeeded"]) == (1, 2, 0)


def test_a_task_may_be_tried_again_without_a_limit(consume: Any, client: Any) -> None:
    tries = []

    def fail_at_first() -> int:
        tries.append(1)
        if len(tries) < 6:
            raise ValueError("on purpose")
        return len(tries)

    consume({"fail": fail_at_first}, max_retries=None)
    assert ended(client, client.enqueue_task_sync("fail")).result == 6


def test_a_task_that_nobody_knows_is_put_aside(consume: Any, client: Any) -> None:
    adapter = consume({"known": lambda: None}, unprocessable_task_queue_name="odd")
    task = client.enqueue_task_sync("unknown", args=[4])
    task_id, error, args, kwargs, _ = taken(consume, "unknown", "odd")
    assert (task_id, args, kwargs) == (task.id, "[4]", "{}")
    assert error == "LookupError: no consumer of the queue 'main' handles tasks called 'unknown'"
    assert adapter.get_metrics_sync()["unprocessable"] == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("unknown", {"unprocessable_task_queue_name": "odd"}),
        ("fail", {"failed_task_queue_name": "odd", "max_retries": 0}),
    ],
)
def test_a_task_that_cannot_be_put_aside_stays_in_its_queue(
    name: str,
    options: dict[str, Any],
    consume: Any,
    client: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("always")

    (tmp_path / "odd").touch()  # where the broker wants to create a folder
    adapter = consume({"fail": fail, "good": lambda: 1}, **options)
    client.enqueue_task_sync(name)
    until(lambda: "could not be retried, put aside or acknowledged" in caplog.text, bool)
    assert ended(client, client.enqueue_task_sync("good")).result == 1
    assert len(list(tmp_path.glob("main/*.taken"))) == 1
    assert adapter.get_metrics_sync()["running"] == 0


def test_a_consumer_ends_what_it_has_begun_and_leaves_the_rest(
    consume: Any, client: Any, tmp_path: Path
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def slow(number: int) -> None:
        begun.set()
        assert go_on.wait(60)
        done.append(number)

    tasks = [client.enqueue_task_sync("slow", args=[number]) for number in range(12)]
    adapter = consume({"slow": slow})
    assert begun.wait(60)
    stopping = threading.Thread(target=adapter.stop_consumer)
    stopping.start()
    until(lambda: adapter._stopping.is_set(), bool)
    go_on.set()
    stopping.join()
    assert not list(tmp_path.glob("main/*.taken"))
    assert 0 < len(done) < 12
    assert adapter.health_check_sync() == []
    consume({"slow": done.append})
    for task in tasks:
        ended(client, task)
    assert sorted(done) == list(range(12))


def test_a_consumer_that_does_not_end_in_time_acknowledges_nothing(
    consume: Any, client: Any, tmp_path: Path
) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go_on.wait(60)
        done.set()

    adapter = consume({"slow": slow})
    task = client.enqueue_task_sync("slow")
    assert begun.wait(60)
    adapter.stop_consumer(timeout=0.05)
    go_on.set()
    assert done.wait(60)
    assert client.get_task_status_sync(task.id).status == "PENDING"
    assert len(list(tmp_path.glob("main/*.taken"))) == 1


def test_a_consumer_that_ends_by_itself_is_started_again(
    consume: Any, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(taskiq_task_processor, "_CONSUMER_RESTART_DELAY_S", 0.01)
    brokers: list[Any] = []
    new = taskiq_brokers.new_broker

    def remember(*args: Any) -> Any:
        broker = new(*args)
        if not brokers:
            monkeypatch.setattr(broker, "listen", break_down)
        brokers.append(broker)
        return broker

    async def break_down() -> AsyncGenerator[bytes, None]:
        raise ConnectionResetError("on purpose")
        yield b""

    task = client.enqueue_task_sync("double", args=[2])
    with caplog.at_level(logging.ERROR, logger="skate.serve"):
        adapter = TaskiqTaskProcessorAdapter(client._config)
        adapter.register_task_handle(lambda number: 2 * number, "double")
        monkeypatch.setattr(taskiq_task_processor, "new_broker", remember)
        adapter.start_consumer()
        try:
            assert ended(client, task).result == 4
        finally:
            adapter.stop_consumer()
    assert "ended unexpectedly; restarting it" in caplog.text


def test_a_consumer_can_be_stopped_before_it_has_begun(consume: Any) -> None:
    adapter = consume({})
    adapter.stop_consumer()
    adapter.stop_consumer()


def test_two_consumers_in_one_process_do_not_mix(consume: Any, configure: Configure, client: Any) -> None:
    consume({"who": lambda: "one"})
    consume({"who": lambda: "other"}, queue="other")
    other: Any = instantiate_adapter_from_config(configure(queue="other"))
    try:
        tasks = [each.enqueue_task_sync("who") for each in (client, other) for _ in range(3)]
        assert [ended(client, task).result for task in tasks] == ["one"] * 3 + ["other"] * 3
    finally:
        other.stop_consumer()


def test_consumers_tell_how_they_are(consume: Any, client: Any) -> None:
    adapter = consume({"double": lambda number: 2 * number})

    async def ask() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        task = await client.enqueue_task_async("double", args=[1])
        while (await client.get_task_status_async(task.id)).status == "PENDING":  # noqa: ASYNC110 - as in `ended`
            await asyncio.sleep(0.01)
        return await adapter.health_check_async(), await adapter.get_metrics_async()

    answer, metrics = asyncio.run(ask())
    assert answer == [{f"main@{socket.gethostname()}": {"ok": "pong"}}]
    assert (metrics["queue_name"], metrics["max_concurrency"], metrics["succeeded"]) == ("main", 2, 1)
    until(adapter.get_metrics_sync, lambda found: found["running"] == 0)


def test_tasks_cannot_be_cancelled(client: Any) -> None:
    with pytest.raises(NotImplementedError, match="taskiq cannot cancel tasks, and 'abc' stays"):
        client.cancel_task_sync("abc")
    with pytest.raises(NotImplementedError):
        asyncio.run(client.cancel_task_async("abc"))


def test_an_async_handler_must_not_block_its_event_loop(consume: Any, client: Any) -> None:
    async def enqueue() -> str:
        with pytest.raises(RuntimeError, match="use the _async methods"):
            adapter.enqueue_task_sync("other")
        return (await adapter.enqueue_task_async("other")).id

    adapter = consume({"enqueue": enqueue, "other": lambda: "done"})
    other = ended(client, client.enqueue_task_sync("enqueue")).result
    assert ended(client, TaskResult(id=other, status="PENDING", result=None)).result == "done"


def test_an_adapter_that_is_forgotten_leaves_nothing_behind(configure: Configure) -> None:
    adapter: Any = instantiate_adapter_from_config(configure())
    adapter.enqueue_task_sync("double", args=[1])
    thread = adapter._loop._thread
    del adapter
    gc.collect()
    assert not thread.is_alive()


def test_results_need_a_backend(configure: Configure, tmp_path: Path) -> None:
    config = TaskiqAdapterConfig(
        broker_type=BROKER, broker_kwargs={"folder": str(tmp_path), "keeps_results": False}
    )
    adapter: Any = instantiate_adapter_from_config(configure(adapter_config=config))
    try:
        task = adapter.enqueue_task_sync("double", args=[1])
        with pytest.raises(RuntimeError, match="keeps no results: set result_backend_url"):
            adapter.get_task_status_sync(task.id)
    finally:
        adapter.stop_consumer()


def test_replicas_process_tasks(configure: Configure, client: Any, run: Any) -> None:
    @light()
    @task_consumer(task_processor_config=configure())
    class Thumbnails:
        def __init__(self, suffix: str) -> None:
            self.suffix = suffix

        @task_handler(name="make")
        def make(self, path: str) -> str:
            return path + self.suffix

        @task_handler
        async def make_async(self, path: str) -> str:
            return f"async {path}{self.suffix}"

    run(Thumbnails.bind(".small"), route_prefix=None)
    tasks = [client.enqueue_task_sync(name, args=["a"]) for name in ("make", "make_async")]
    assert [ended(client, task).result for task in tasks] == ["a.small", "async a.small"]


# ------------------------------------------------------------ configurations


def test_a_configuration_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be an instance of TaskiqAdapterConfig, got \{'a': 1\}"):
        TaskiqTaskProcessorAdapter(TaskProcessorConfig(queue_name="q", adapter_config={"a": 1}))


@pytest.mark.parametrize(
    ("broker", "arguments", "reason"),
    [
        ("redis", {}, "broker_type is 'redis': use one of redis_stream, .*, or the import path of a class"),
        ("redis_list", {}, r"broker_kwargs of the broker 'redis_list' lacks \['url'\]"),
        ("redis_stream_sentinel", {"master_name": "a"}, r"'redis_stream_sentinel' lacks \['sentinels'\]"),
        ("nats", None, r"'nats' lacks \['servers'\]"),
        ("kafka", {}, r"'kafka' lacks \['bootstrap_servers'\]"),
    ],
)
def test_a_broker_is_checked(configure: Configure, broker: str, arguments: Any, reason: str) -> None:
    config = TaskiqAdapterConfig(broker_type=broker, broker_kwargs=arguments)
    adapter = TaskiqTaskProcessorAdapter(configure(adapter_config=config))
    with pytest.raises(ValueError, match=reason):
        adapter.initialize()


@pytest.mark.parametrize(
    ("module", "broker", "package"),
    [
        ("taskiq_redis", "redis_stream", "taskiq-redis"),
        ("taskiq_aio_pika", "rabbitmq", "taskiq-aio-pika"),
    ],
)
def test_without_the_package_of_a_broker_the_error_says_what_to_install(
    module: str, broker: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=f"the broker '{broker}' of .* needs {package}: pip install {package}"
    ):
        taskiq_brokers.new_broker(broker, "q", {"url": "redis://localhost"}, None)


def test_without_taskiq_the_error_says_what_to_install(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "taskiq", None)
    with pytest.raises(ImportError, match="needs taskiq: pip install taskiq"):
        TaskiqTaskProcessorAdapter(configure())
