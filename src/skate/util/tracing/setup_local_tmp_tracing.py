"""A startup hook that writes spans to files: `skate.util.tracing.setup_local_tmp_tracing:setup_tracing`."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

__all__ = ["setup_tracing", "spans_dir"]

spans_dir = "/tmp/spans/"


def setup_tracing() -> None:
    """Write each span of this process as a line of JSON to `/tmp/spans/PID.txt`.

    Raises:
        PermissionError: The folder belongs to another user.
    """
    os.makedirs(spans_dir, mode=0o700, exist_ok=True)
    if os.stat(spans_dir).st_uid != os.getuid():
        raise PermissionError(
            f"{spans_dir} belongs to another user. Remove it, or write a startup hook with a folder of your own."
        )
    file = open(os.path.join(spans_dir, f"{os.getpid()}.txt"), "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(
            ConsoleSpanExporter(out=file, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        )
    )
    trace.set_tracer_provider(provider)
