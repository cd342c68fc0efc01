"""The logging and tracing options of `serve.start`, for every Serve process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skate._api import variables
from skate.air._optional import load
from skate.serve._config import validation

__all__ = ["ObservabilityOptions", "current_options", "set_options"]

_EXPORTER = "SERVE_TRACING_EXPORTER_IMPORT_PATH"
_RATIO = "SERVE_TRACING_SAMPLING_RATIO"


@dataclass(frozen=True)
class ObservabilityOptions:
    """The checked fields of `LoggingConfig` and `TracingConfig`; None if not given."""

    logging: dict[str, Any] | None = None
    tracing: dict[str, Any] | None = None

    @classmethod
    def of(
        cls, logging_config: Any, tracing_config: Any, environ: Mapping[str, str] = os.environ
    ) -> ObservabilityOptions:
        """Check the user's options. Without a tracing config, environment variables may enable tracing.

        Raises:
            ValueError: If a field is invalid.
            ImportError: If tracing is enabled and OpenTelemetry is not installed.
        """
        if tracing_config is None:
            tracing_config = _from_environment(environ)
        if logging_config is None and tracing_config is None:
            return cls()
        from skate.serve.schema import LoggingConfig, TracingConfig

        logs = validation.validate_model("logging_config", LoggingConfig, _fields(logging_config))
        traces = validation.validate_model("tracing_config", TracingConfig, _fields(tracing_config))
        if traces is not None and traces.enabled:
            load(
                "opentelemetry.sdk.trace", "Tracing of Serve", "skate[otel]"
            )  # raises ImportError if it is missing
        return cls(
            logging=None if logs is None else logs.model_dump(),
            tracing=None if traces is None or not traces.enabled else traces.model_dump(),
        )


def _fields(given: Any) -> Any:
    return given.model_dump() if hasattr(given, "model_dump") else given


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any] | None:
    found = {name: value for name in (_EXPORTER, _RATIO) if (value := variables.text(name, environ))}
    if _EXPORTER not in found:
        return None
    ratio = {"sampling_ratio": float(found[_RATIO])} if _RATIO in found else {}
    return {"enabled": True, "exporter_import_path": found[_EXPORTER], **ratio}


_current = ObservabilityOptions()


def set_options(options: ObservabilityOptions) -> None:
    """Set the options of this process. The controller passes them to all processes that it starts."""
    global _current
    _current = options


def current_options() -> ObservabilityOptions:
    """Return the options of this process."""
    return _current
