"""Export of metrics to Prometheus: the text format, version 0.0.4, and a small HTTP server."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from socketserver import TCPServer
from typing import Any, Final

from skate.util._metrics_store import Family, Series, Tags
from skate.util.node import LOOPBACK

__all__ = ["CONTENT_TYPE", "MetricsServer", "export_name", "exposition", "quantiles"]

# Requests with other host names are rejected: a web page in the user's browser could make them (DNS rebinding).
_HOSTS: Final = frozenset((LOOPBACK, "localhost"))
logger = logging.getLogger(__name__)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]")


class MetricsServer:
    """Serve ``/metrics`` on the loopback interface until it is closed.

    Attributes:
        port: The port it listens on.
        url: The URL for Prometheus to scrape.
    """

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        handler = type("Handler", (_Handler,), {"text": staticmethod(text)})
        self._server = _Server((LOOPBACK, port), handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{LOOPBACK}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="skate-metrics-server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # HTTPServer would look up the host name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    text: Callable[[], str]
    timeout = 10

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN, f"Request this page from {LOOPBACK}")
        elif self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(HTTPStatus.NOT_FOUND, "The metrics are at /metrics")
        else:
            body = self.text().encode("utf-8", "replace")
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because Prometheus scrapes every few seconds."""


def exposition(found: Iterable[Series], prefix: str) -> str:
    """Return the series as text, with `prefix` before the name of each metric."""
    families: dict[str, Family] = {}
    samples: dict[str, dict[Tags, list[float]]] = {}
    for series in sorted(found, key=lambda one: (one.family.name, one.tags)):
        name = export_name(series.family, prefix)
        family = families.setdefault(name, series.family)
        if (family.kind, family.boundaries) != (series.family.kind, series.family.boundaries):
            logger.warning("Metric %s has conflicting declarations; only %s is exported", name, family)
            continue
        # A counter "x" and a counter "x_total" are the same to Prometheus.
        labels = tuple((_label(tag), value) for tag, value in series.tags)
        known = samples.setdefault(name, {}).setdefault(labels, [0.0] * len(series.values))
        added = zip(known, series.values, strict=True)
        samples[name][labels] = series.values if family.kind == "gauge" else [a + b for a, b in added]
    lines: list[str] = []
    for name, family in families.items():
        if family.description:
            lines.append(f"# HELP {name} {_escape(family.description)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for tags, values in samples[name].items():
            lines.extend(_sample_lines(name, family, tags, values))
    return "".join(f"{line}\n" for line in lines)


def _sample_lines(name: str, family: Family, tags: Tags, values: list[float]) -> Iterator[str]:
    if family.kind != "histogram":
        yield f"{name}{_labels(tags)} {_number(values[0])}"
        return
    *buckets, total = values
    counts = list(accumulate(buckets))
    for limit, count in zip((*family.boundaries, math.inf), counts, strict=True):
        yield f"{name}_bucket{_labels((*tags, ('le', _number(limit))))} {_number(count)}"
    yield f"{name}_sum{_labels(tags)} {_number(total)}"
    yield f"{name}_count{_labels(tags)} {_number(counts[-1])}"


def export_name(family: Family, prefix: str) -> str:
    """Return the name of a metric in the text; those of a histogram have a further suffix."""
    name = prefix + family.name
    return f"{name}_total" if family.kind == "counter" and not name.endswith("_total") else name


def quantiles(boundaries: list[float], counts: list[float]) -> dict[str, float | None]:
    """Return the median and two high quantiles of a histogram, interpolated within their buckets."""
    return {f"p{share}": _quantile(boundaries, counts, share / 100) for share in (50, 90, 99)}


def _quantile(boundaries: list[float], counts: list[float], share: float) -> float | None:
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    for index, below in enumerate(accumulate(counts)):
        if below >= wanted and counts[index]:
            if index >= len(boundaries):
                return boundaries[-1] if boundaries else None  # above all boundaries
            lower = boundaries[index - 1] if index else 0.0
            inside = (wanted - (below - counts[index])) / counts[index]
            return lower + inside * (boundaries[index] - lower)
    return None


def _label(tag: str) -> str:
    name = _NOT_IN_LABELS.sub("_", tag)
    return f"_{name}" if name[:1].isdigit() or not name else name


def _labels(tags: Tags) -> str:
    quote = '\\"'
    pairs = ",".join(f'{tag}="{_escape(value).replace(chr(34), quote)}"' for tag, value in tags)
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
