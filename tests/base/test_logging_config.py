"""Structured logging: its settings, and the lines it writes."""

from __future__ import annotations

import io
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from skate._base import log_format
from skate._base.log_format import JSONFormatter, TextFormatter, set_context_source
from skate._base.logging_config import LoggingConfig


@pytest.fixture
def context() -> Iterator[None]:
    """Pretend to be in a job."""
    set_context_source(lambda: {"job_id": "01"})
    yield
    set_context_source(dict)


@pytest.fixture
def loggers() -> Iterator[None]:
    """Put back what `apply` changes."""
    touched = [logging.getLogger(), logging.getLogger("skate")]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in touched]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def record(message: str = "it is %s", *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.INFO, "/path/file.py", 3, message, args, None)
    vars(made).update(extra)
    return made


def test_the_defaults_are_text_from_info_on() -> None:
    config = LoggingConfig()
    assert LoggingConfig(log_level=logging.DEBUG).log_level == logging.DEBUG
    assert (config.encoding, config.log_level, config.additional_log_standard_attrs) == ("TEXT", "INFO", [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"encoding": "XML"}, "Invalid encoding type: 'XML'"),
        ({"log_level": "LOUD"}, "Invalid log level: LOUD"),
        (
            {"additional_log_standard_attrs": ["colour"]},
            "has 'colour', which is not an attribute of log records",
        ),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoggingConfig(**arguments)


def test_settings_survive_pickling_and_dictionaries() -> None:
    config = LoggingConfig("JSON", "DEBUG", ["name"])
    assert pickle.loads(pickle.dumps(config)) == config
    assert LoggingConfig.from_dict(config.to_dict()) == config


def test_the_environment_may_ask_for_structured_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_LOGGING_CONFIG_ENCODING", raising=False)
    monkeypatch.delenv("SKATE_LOGGING_CONFIG_ENCODING", raising=False)
    assert LoggingConfig.from_environment() is None
    monkeypatch.setenv("RAY_LOGGING_CONFIG_ENCODING", "JSON")
    assert LoggingConfig.from_environment() == LoggingConfig("JSON")


@pytest.mark.usefixtures("context")
def test_text_lines_end_with_where_they_come_from() -> None:
    line = TextFormatter(["name"]).format(record("it is %s", "late", user=3))
    assert "INFO file.py:3 -- it is late name=a.b user=3 job_id=01 timestamp_ns=" in line


@pytest.mark.usefixtures("context")
def test_json_lines_are_objects() -> None:
    fields = json.loads(JSONFormatter(["name"]).format(record("it is %s", "late", user=3, thing={1})))
    assert fields["message"] == "it is late"
    assert fields["levelname"] == "INFO"
    assert (fields["filename"], fields["lineno"], fields["name"]) == ("file.py", 3, "a.b")
    assert (fields["user"], fields["thing"], fields["job_id"]) == (3, "{1}", "01")
    assert isinstance(fields["timestamp_ns"], int)
    assert "exc_text" not in fields


def test_an_exception_is_part_of_the_line() -> None:
    made = record("bad")
    error = ValueError("broken")
    made.exc_info = (ValueError, error, None)
    assert "broken" in json.loads(JSONFormatter([]).format(made))["exc_text"]
    assert "broken" in TextFormatter([]).format(made)


@pytest.mark.usefixtures("loggers")
def test_applied_settings_hold_for_all_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    LoggingConfig("TEXT").apply()
    LoggingConfig("JSON").apply()
    logging.getLogger("some.module").info("hello")
    logging.getLogger("some.module").debug("quiet")
    logging.getLogger("skate.part").info("hello from within")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["hello", "hello from within"]


def test_without_a_session_there_is_no_context() -> None:
    assert log_format._source() == {}
