"""Structured logging: a job's records are encoded as configured, in every process, with their origin."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from tests.plugins.sessions import Start

JSON = skate.LoggingConfig(encoding="JSON", log_level="WARNING", additional_log_standard_attrs=["name"])


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("skate")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def encode(text: str) -> dict[str, Any]:
    """Return what the process makes of a record."""
    handlers = logging.getLogger().handlers
    (handler,) = (each for each in handlers if type(each.formatter).__module__.startswith(("skate.", "ray.")))
    record = logging.getLogger("mine").makeRecord("mine", logging.ERROR, "f.py", 7, text, (), None)
    handler.filter(record)  # which adds the ids, on Ray
    found: dict[str, Any] = json.loads(handler.format(record))
    return found


@skate.remote
def encode_in_task(text: str) -> tuple[dict[str, Any], str | None]:
    return encode(text), skate.get_runtime_context().get_task_id()


@skate.remote
class Speaker:
    def encode(self, text: str) -> tuple[dict[str, Any], str | None]:
        return encode(text), skate.get_runtime_context().get_actor_id()

    def level(self) -> int:
        return logging.getLogger().level


def test_a_record_of_the_driver_names_its_job(fresh: Start) -> None:
    fresh(logging_config=JSON)
    found = encode("hello")
    assert (found["message"], found["levelname"], found["name"]) == ("hello", "ERROR", "mine")
    assert found["job_id"] == skate.get_runtime_context().get_job_id()
    assert "task_id" not in found


def test_a_record_of_a_task_names_the_task(fresh: Start) -> None:
    fresh(logging_config=JSON)
    found, task = skate.get(encode_in_task.remote("hello"))
    assert found["message"] == "hello"
    assert found["task_id"] == task
    assert found["task_func_name"].endswith("encode_in_task")


def test_a_record_of_an_actor_names_the_actor(fresh: Start) -> None:
    fresh(logging_config=JSON)
    found, actor = skate.get(Speaker.remote().encode.remote("hello"))
    assert found["actor_id"] == actor
    assert found["task_func_name"].endswith("Speaker.encode")


def test_the_level_holds_in_workers(fresh: Start) -> None:
    fresh(logging_config=JSON)
    assert skate.get(Speaker.remote().level.remote()) == logging.WARNING


def test_a_job_without_a_configuration_logs_as_python_does(fresh: Start) -> None:
    fresh()
    assert skate.get(Speaker.remote().level.remote()) == logging.getLogger().level
