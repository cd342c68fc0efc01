"""A startup hook for tests that writes spans to a folder, and functions that read them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

FOLDER = "SKATE_TEST_SPANS"  # the variable with the folder; without it, nothing is written
HOOK = "tests.span_files:write_spans"


class FileExporter(SpanExporter):
    """Write each span as a line to a file of the process."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        folder = os.environ.get(FOLDER)
        if folder:
            with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
                file.writelines(f"{span.to_json(indent=None)}\n" for span in spans)
        return SpanExportResult.SUCCESS


def write_spans() -> None:
    """Write the spans of this process to the folder that the variable names."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
    trace.set_tracer_provider(provider)


def fail() -> None:
    """Be a hook that raises."""
    raise LookupError("no collector")


def fail_elsewhere() -> None:
    """Be a hook that raises in all processes but one."""
    if os.environ["FAIL_IN_PROCESSES_OTHER_THAN"] != str(os.getpid()):
        fail()


not_callable = 3


class SpanTree:
    """The spans in a folder, and what is under what."""

    def __init__(self, folder: Path) -> None:
        lines = [
            line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines(keepends=True)
        ]
        spans = [json.loads(line) for line in lines if line.endswith("\n")]  # another may be half written
        self.spans: list[dict[str, Any]] = sorted(spans, key=lambda span: str(span["start_time"]))
        self._by_id = {span["context"]["span_id"]: span for span in self.spans}

    def names(self) -> list[str]:
        """Return the names of all spans, the first to start first."""
        return [span["name"] for span in self.spans]

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the spans with this name."""
        return [span for span in self.spans if span["name"] == name]

    def one(self, name: str) -> dict[str, Any]:
        """Return the only span with this name."""
        (found,) = self.named(name)
        return found

    def path(self, span: dict[str, Any]) -> list[str]:
        """Return the names from the root of a span's trace down to the span."""
        above = self._by_id.get(span["parent_id"])
        if above is not None:
            assert above["context"]["trace_id"] == span["context"]["trace_id"]
        return [*([] if above is None else self.path(above)), span["name"]]

    def paths(self, name: str) -> list[list[str]]:
        """Return the path of each span with this name."""
        return [self.path(span) for span in self.named(name)]
