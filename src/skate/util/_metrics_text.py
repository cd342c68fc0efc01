"""Metrics in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from skate.util._metrics_store import Family, Series, Tags

__all__ = ["CONTENT_TYPE", "exposition"]

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]")


def exposition(found: Iterable[Series], prefix: str) -> str:
    """Return the series as text, each metric under its name with `prefix` before it."""
    families: dict[str, Family] = {}
    samples: dict[str, dict[Tags, list[float]]] = {}
    for series in sorted(found, key=lambda one: (one.family.name, one.tags)):
        name = _exported_name(series.family, prefix)
        family = families.setdefault(name, series.family)
        if (family.kind, family.boundaries) != (series.family.kind, series.family.boundaries):
            logger.warning("Metric %s is declared in two ways; only %s is exported", name, family)
            continue
        # A counter "x" and a counter "x_total" are one and the same to Prometheus.
        labels = tuple((_label(tag), value) for tag, value in series.tags)
        known = samples.setdefault(name, {}).setdefault(labels, [0.0] * len(series.values))
        added = zip(known, series.values, strict=True)
        samples[name][labels] = series.values if family.kind == "gauge" else [a + b for a, b in added]
    lines: list[str] = []
    for name, family in families.items():
        if family.description:
            lines.append(f"# HELP {name} {_escaped(family.description)}")
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


def _exported_name(family: Family, prefix: str) -> str:
    name = prefix + family.name
    return f"{name}_total" if family.kind == "counter" and not name.endswith("_total") else name


def _label(tag: str) -> str:
    name = _NOT_IN_LABELS.sub("_", tag)
    return f"_{name}" if name[:1].isdigit() or not name else name


def _labels(tags: Tags) -> str:
    quote = '\\"'
    pairs = ",".join(f'{tag}="{_escaped(value).replace(chr(34), quote)}"' for tag, value in tags)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
