"""Log records as lines of text or JSON, with the job, task and actor of their origin."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

TEXT_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"

# The attributes that `logging` itself adds to a record; others come from the program's `extra=`.
STANDARD_ATTRIBUTES = frozenset(
    {
        "args", "asctime", "created", "exc_info", "exc_text", "filename", "funcName", "levelname", "levelno",
        "lineno", "message", "module", "msecs", "msg", "name", "pathname", "process", "processName",
        "relativeCreated", "stack_info", "taskName", "thread", "threadName",
    }
)  # fmt: skip
_JSON_ATTRIBUTES = ("asctime", "levelname", "message", "filename", "lineno", "process")

# Returns the origin of a record: ids of job, node, worker, task, actor. The engine sets it.
_source: Callable[[], dict[str, Any]] = dict


def set_context_source(source: Callable[[], dict[str, Any]]) -> None:
    """Set the function that returns the job, task and actor of the calling code."""
    global _source
    _source = source


class _StructuredFormatter(logging.Formatter):
    """The common part of both encodings."""

    def __init__(self, additional: list[str]) -> None:
        super().__init__(TEXT_FORMAT)
        self._additional = additional

    def _extras(self, record: logging.LogRecord) -> dict[str, Any]:
        extras = {name: getattr(record, name, None) for name in self._additional}
        extras.update(
            {name: value for name, value in vars(record).items() if name not in STANDARD_ATTRIBUTES}
        )
        extras.update(_source())
        extras["timestamp_ns"] = time.time_ns()
        return extras


class TextFormatter(_StructuredFormatter):
    """Writes a readable line, followed by `name=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = super().format(record)
        return " ".join([line, *(f"{name}={value}" for name, value in self._extras(record).items())])


class JSONFormatter(_StructuredFormatter):
    """Writes each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        fields: dict[str, Any] = {name: getattr(record, name) for name in _JSON_ATTRIBUTES}
        if record.exc_info:
            fields["exc_text"] = record.exc_text or self.formatException(record.exc_info)
        fields.update(self._extras(record))
        return json.dumps(fields, default=str)


FORMATTERS: dict[str, type[_StructuredFormatter]] = {"TEXT": TextFormatter, "JSON": JSONFormatter}
