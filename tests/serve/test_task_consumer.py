from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from skate.serve.schema import CeleryAdapterConfig, TaskProcessorAdapter, TaskProcessorConfig, TaskResult
from skate.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler


class Adapter(TaskProcessorAdapter):
    """Writes down what is asked of it."""

    def __init__(self, config: TaskProcessorConfig) -> None:
        self.config = config
        self.handlers: dict[str, Any] = {}
        self.events: list[Any] = []

    def initialize(self, consumer_concurrency: int = 5) -> None:
        self.events.append(consumer_concurrency)

    def register_task_handle(self, func: Any, name: str | None = None) -> None:
        assert name is not None
        self.handlers[name] = func

    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        return TaskResult(id="1", status="SUCCESS", result=self.handlers[task_name](*args))

    def get_task_status_sync(self, task_id: str) -> TaskResult:
        raise NotImplementedError

    def start_consumer(self, **kwargs: Any) -> None:
        self.events.append("start")

    def stop_consumer(self, timeout: float = 10.0) -> None:
        self.events.append("stop")

    def cancel_task_sync(self, task_id: str) -> None:
        raise NotImplementedError

    def get_metrics_sync(self) -> dict[str, Any]:
        raise NotImplementedError

    def health_check_sync(self) -> list[dict[str, Any]]:
        raise NotImplementedError


def config(adapter: Any = Adapter) -> TaskProcessorConfig:
    celery = CeleryAdapterConfig(broker_url="memory://", backend_url="cache+memory://")
    return TaskProcessorConfig(queue_name="q", adapter=adapter, adapter_config=celery)


class Plain:
    """A consumer of two kinds of tasks."""

    factor: int

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    @task_handler
    def scale(self, number: int) -> int:
        return self.factor * number

    @task_handler(name="negate")
    def minus(self, number: int) -> int:
        return -number

    def other(self) -> None: ...


Consumer: Any = task_consumer(task_processor_config=config())(Plain)


class TestConsumers:
    def test_handlers_are_registered_by_name_before_it_starts(self) -> None:
        consumer = Consumer(factor=3)
        consumer.initialize_callable(7)
        adapter = consumer._adapter
        assert adapter.events == [7, "start"]
        assert adapter.handlers == {"negate": consumer.minus, "scale": consumer.scale}
        assert adapter.enqueue_task_sync("scale", [2]).result == 6
        assert adapter.enqueue_task_sync("negate", [2]).result == -2

    def test_it_stops_when_the_object_goes_and_then_the_object_ends(self) -> None:
        ends = []

        class Ending(Plain):
            def __del__(self) -> None:
                ends.append(list(adapter.events))

        consumer = task_consumer(task_processor_config=config())(Ending)()
        consumer.initialize_callable(1)
        adapter = consumer._adapter
        adapter.handlers.clear()  # they hold the object
        del consumer
        assert ends == [[1, "start", "stop"]]

    def test_one_that_never_started_ends_quietly(self) -> None:
        consumer = Consumer()
        del consumer

    def test_inherited_handlers_count(self) -> None:
        class More(Plain):
            @task_handler
            def add(self, number: int) -> int:
                return number + self.factor

        consumer: Any = task_consumer(task_processor_config=config())(More)()
        consumer.initialize_callable(1)
        assert list(consumer._adapter.handlers) == ["add", "negate", "scale"]

    def test_the_class_looks_like_the_original(self) -> None:
        assert Consumer.__name__ == "Plain"
        assert Consumer.__doc__ == Plain.__doc__
        assert Consumer.__wrapped__ is Plain
        assert inspect.get_annotations(Consumer) == {"factor": "int", "_adapter": TaskProcessorAdapter}
        assert issubclass(Consumer, Plain)

    def test_the_decorator_needs_its_configuration(self) -> None:
        with pytest.raises(TypeError):
            task_consumer(Plain)


class TestHandlers:
    def test_a_handler_can_be_called_as_a_method(self) -> None:
        assert Plain().scale(4) == 8
        assert Plain.minus._task_name == "negate"

    def test_an_async_handler_stays_async(self) -> None:
        @task_handler
        async def double(number: int) -> int:
            return 2 * number

        assert inspect.iscoroutinefunction(double)
        assert asyncio.run(double(2)) == 4

    @pytest.mark.parametrize("name", ["", "  ", 3])
    def test_a_name_is_a_text(self, name: Any) -> None:
        with pytest.raises(ValueError, match="Task name must be a non-empty string, got"):
            task_handler(name=name)


class TestAdapters:
    @pytest.mark.parametrize("path", [f"{__name__}.Adapter", f"{__name__}:Adapter"])
    def test_an_adapter_may_be_named(self, path: str) -> None:
        adapter = instantiate_adapter_from_config(config(path))
        assert isinstance(adapter, Adapter)
        assert adapter.events == [5]

    def test_what_is_no_adapter_is_refused(self) -> None:
        with pytest.raises(TypeError, match="must create a TaskProcessorAdapter"):
            instantiate_adapter_from_config(config(lambda config: object()))
