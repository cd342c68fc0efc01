"""Logging of Serve processes: a file per process, and standard error.

Records of the logger `skate.serve` and its children carry the context of the request that they belong to. `ray.serve`,
which programs written for Ray use, has the same handlers.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from logging.handlers import MemoryHandler, RotatingFileHandler
from typing import Any

from skate._api import variables
from skate.serve._runtime.ids import ReplicaID
from skate.serve.context import _get_request

__all__ = ["Clock", "Component", "PrintRedirect", "ServeLogs", "logs_folder"]

LOGGERS = ("skate.serve", "ray.serve")
ACCESS = "serve_access_log"  # attribute of records that belong to the access log
EXTRA_FIELDS = "ray_serve_extra_fields"  # dict in `extra` whose items become fields of the record
_LARGEST_FILE = 100 << 20
_OLD_FILES = 5
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = frozenset(
    (ACCESS, EXTRA_FIELDS, "request_id", "route", "application", "deployment", "replica", "log_to_stderr")
)


class Component:
    """The identity of a Serve process in log records and file names."""

    def __init__(self, kind: str, id: ReplicaID | str) -> None:
        self.kind = kind
        if isinstance(id, ReplicaID):
            deployment = id.deployment_id
            self.name = f"{deployment.app_name}_{deployment.name}" if deployment.app_name else deployment.name
            self.id = id.unique_id
            self.application = deployment.app_name
            self.fields = {"deployment": self.name, "replica": self.id}
        else:
            self.name, self.id, self.application = kind, id, ""
            self.fields = {"component_id": id}
        joined = self.id if self.name == kind else f"{self.name}_{self.id}"
        self.file_stem = re.sub(r"[^A-Za-z0-9_.]", "_", f"{kind}_{joined}")


def logs_folder() -> str:
    """Return the folder of Serve's logs in this session, and create it if necessary."""
    import skate

    folder = os.path.join(skate.get_runtime_context().get_session_dir(), "logs", "serve")
    os.makedirs(folder, exist_ok=True)
    return folder


class ServeLogs:
    """The log handlers of this process. `configure` may be called again with other settings."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.is_text = True
        self.access_is_on = False
        self.shows_access = False  # also write the access log to standard error
        self.file: _LogFile | None = None
        self.handlers: list[logging.Handler] = []
        self._last: logging.Handler | None = None
        self._print_redirect: PrintRedirect | None = None
        # Called before a record is written, to write buffered lines first.
        self.before_record: Callable[[], None] = _do_nothing
        self._loggers = [logging.getLogger(name) for name in LOGGERS]

    @property
    def logs_access(self) -> bool:
        """Whether to log requests: the configuration enables it, and the level of the loggers allows it."""
        return self.access_is_on and self._loggers[0].level <= logging.INFO >= self._loggers[1].level

    @property
    def logs_prints(self) -> bool:
        """Whether prints are redirected to the log."""
        return self._print_redirect is not None

    @property
    def has_only_own_handlers(self) -> bool:
        """Whether the logger has no other handlers."""
        listening = self._loggers[0].handlers
        return len(listening) == 2 and listening[1] is self._last

    def configure(self, config: dict[str, Any] | None) -> None:
        """Apply the fields of a `LoggingConfig`."""
        config = config or {}
        self.close()
        self.is_text = config.get("encoding", "TEXT") != "JSON"
        self.access_is_on = config.get("enable_access_log", True)
        attributes = tuple(config.get("additional_log_standard_attrs") or ())
        folder = config.get("logs_dir") or logs_folder()
        os.makedirs(folder, exist_ok=True)
        self.file = _LogFile(os.path.join(folder, f"{self.component.file_stem}.log"))
        kept = _OrderedFileHandler(self.file, self)
        stream = _StderrHandler(self)
        is_replica, shown = self.component.kind == "replica", variables.text("SERVE_LOG_TO_STDERR")
        self.shows_access = is_replica and shown == "1"  # not by default, because it would flood the terminal
        if not is_replica or shown == "0":
            stream.setLevel(logging.WARNING)  # the terminal shows only problems of Serve itself
        form = (
            _TextFormatter(self.component, attributes)
            if self.is_text
            else _JsonFormatter(self.component, attributes)
        )
        known = _RequestFilter(self.component, self.access_is_on)
        self.file.setFormatter(form)
        self.handlers = [stream, kept]
        self._last = kept
        for handler in self.handlers:
            handler.addFilter(known)
            handler.setFormatter(form)
        if is_replica and shown == "0":
            self._print_redirect = PrintRedirect(self._loggers[0])
        for logger in self._loggers:
            logger.setLevel(config.get("log_level", "INFO"))
            logger.propagate = False
            for handler in self.handlers:
                logger.addHandler(handler)

    def log_access(self, message: str) -> None:
        """Log a line of the access log as a record."""
        self._loggers[0].info(message, extra={ACCESS: True})

    def log_failure(self, message: str, error: BaseException) -> None:
        """Log a failed request with the traceback of its error."""
        self._loggers[0].error("%s: %s", message, error, extra={ACCESS: True})

    def log_to_file(self, message: str) -> None:
        """Log a message to the file only."""
        self._loggers[0].info(message, extra={"log_to_stderr": False})

    def close(self) -> None:
        """Remove the handlers, and close the file."""
        if self.file is None:
            return
        if self._print_redirect is not None:
            self._print_redirect.close()
            self._print_redirect = None
        for logger in self._loggers:
            for handler in self.handlers:
                logger.removeHandler(handler)
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
        for handler in self.handlers:
            handler.close()
        self.file.close()
        self.handlers, self.file = [], None


def _do_nothing() -> None: ...


class _LogFile(RotatingFileHandler):
    """The rotating log file."""

    def __init__(self, path: str) -> None:
        largest = variables.integer("ROTATION_MAX_BYTES", _LARGEST_FILE, at_least=0)
        kept = variables.integer("ROTATION_BACKUP_COUNT", _OLD_FILES, at_least=0)
        super().__init__(path, maxBytes=largest, backupCount=kept, encoding="utf-8")

    def write(self, text: str) -> None:
        """Write complete lines without formatting."""
        self.acquire()
        try:
            stream = self.stream or self._open()
            if self.maxBytes and stream.tell() + len(text) > self.maxBytes:
                self.doRollover()
                stream = self.stream or self._open()
            self.stream = stream
            stream.write(text)
            stream.flush()
        finally:
            self.release()


class _OrderedFileHandler(MemoryHandler):
    """Write records to the file, after buffered lines."""

    def __init__(self, file: _LogFile, logs: ServeLogs) -> None:
        super().__init__(1, target=file)
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        self._logs.before_record()
        super().emit(record)


class _StderrHandler(logging.StreamHandler[Any]):
    """Write records to the current standard error, except those meant for the file only."""

    def __init__(self, logs: ServeLogs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "log_to_stderr", True):
            self._logs.before_record()
            # Prints may be redirected to the log, but the log itself must not be.
            self.stream = sys.__stderr__ if self._logs.logs_prints else sys.stderr
            super().emit(record)


class _RequestFilter(logging.Filter):
    """Add the context of the current request to records."""

    def __init__(self, component: Component, with_access: bool) -> None:
        super().__init__()
        self._component = component
        self._with_access = with_access

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._with_access and getattr(record, ACCESS, False):
            return False
        known = vars(record)
        request = _get_request()
        if request is not None:
            known.setdefault("request_id", request.request_id)
            known.setdefault("route", request.full_route)
            known.setdefault("application", request.app_name)
        if self._component.kind == "replica":
            known.setdefault("application", self._component.application)
            known.setdefault("deployment", self._component.name)
            known.setdefault("replica", self._component.id)
        return True


class _TextFormatter(logging.Formatter):
    """`INFO 2026-01-31 12:00:00,000 app_Deployment abcd1234 <request id> -- message`."""

    def __init__(self, component: Component, attributes: tuple[str, ...]) -> None:
        super().__init__()
        self._component = component
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is Python's
        component = self._component
        words = [record.levelname, self.formatTime(record), component.name, component.id]
        words += [str(getattr(record, name, "")) for name in self._attributes]
        request_id = getattr(record, "request_id", "")
        if request_id:
            words.append(request_id)
        return f"{' '.join(words)} -- {record.message}"


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, component: Component, attributes: tuple[str, ...]) -> None:
        super().__init__()
        self._component = component
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        written: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
        }
        if record.exc_info:
            written["exc_text"] = self.formatException(record.exc_info)
        for name in self._attributes:
            written[name] = getattr(record, name, None)
        written |= {
            name: value for name, value in vars(record).items() if name not in _OWN and name not in _OURS
        }
        written.update(getattr(record, EXTRA_FIELDS, None) or {})
        written |= {name: getattr(record, name, "") for name in ("route", "request_id", "application")}
        written |= self._component.fields
        written |= {"component_name": self._component.kind, "timestamp_ns": int(record.created * 1e9)}
        return json.dumps(written, default=str)


class Clock:
    """Format times for logs, with the seconds formatted once per second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def __call__(self, now: float) -> str:
        """Return a formatted time."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        return f"{self._text},{int((now - second) * 1000):03d}"


class _LogStream(io.TextIOBase):
    """A stream that logs each write as a record, to the file only."""

    encoding = "utf-8"

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Log a text, unless it is only whitespace."""
        if text.strip():
            self._logger.info(text, extra={"log_to_stderr": False})
        return len(text)


class PrintRedirect(contextlib.ExitStack):
    """Redirect standard output and standard error of this process to a logger until closed.

    Args:
        logger: The logger.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.enter_context(contextlib.redirect_stdout(_LogStream(logger)))
        self.enter_context(contextlib.redirect_stderr(_LogStream(logger)))
