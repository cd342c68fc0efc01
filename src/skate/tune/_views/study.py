"""The trials of an experiment as an Optuna study, which Optuna's plots and importance measures take."""

from __future__ import annotations

import html
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from skate.air import _optional
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import flat

MAX_CATEGORIES = 20  # an axis with more labels is unreadable
LOG_SPAN = 100.0  # a wider range of positive values has a logarithmic axis
MAX_LABEL = 20  # characters, as in Optuna's own labels

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Point:
    """A trial with its value of the metric."""

    trial: Trial
    value: float


@dataclass(frozen=True)
class Study:
    """An Optuna study of the trials, and the parameters to plot.

    Attributes:
        optuna: The study. Its parameters and categories are short labels with HTML escaped.
        names: The labels of the parameters that differ between trials.
        common: The labels of those that every trial has.
        constant: The parameters with the same value in all trials.
        partial: The parameters that only some trials have.
        excessive: The parameters with too many categories to plot.
    """

    optuna: Any
    names: tuple[str, ...]
    common: tuple[str, ...]
    constant: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    excessive: tuple[str, ...] = ()


def parameters_of(trial: Trial) -> dict[str, Any]:
    """Return the configuration of a trial by paths such as `optimizer/lr`."""
    return {name: _plain(value) for name, value in flat(trial.config)}


def finite_points(trials: Iterable[Trial], metric: str) -> list[Point]:
    """Return the trials whose last value of a metric is finite, in their order."""
    found = []
    for trial in trials:
        value = trial.metric_analysis.get(metric, {}).get("last")
        if value is not None and math.isfinite(value):
            found.append(Point(trial, value))
    return found


def build_study(points: Sequence[Point], mode: str) -> Study:
    """Return the study of some trials.

    Args:
        points: The trials, in the order in which they were created.
        mode: "min" or "max".
    """
    columns: dict[str, dict[int, Any]] = {}
    for row, point in enumerate(points):
        for name, value in parameters_of(point.trial).items():
            columns.setdefault(name, {})[row] = value
    partial = tuple(name for name, column in columns.items() if len(column) < len(points))

    constant, excessive = [], []
    plotted: dict[str, dict[int, Any]] = {}
    for name, column in columns.items():
        values = plot_values(list(column.values()))
        if values is None:
            excessive.append(name)
        elif len(set(values)) > 1:
            plotted[name] = dict(zip(column, values, strict=True))
        elif name not in partial:
            constant.append(name)

    labels = labels_of(plotted)
    distributions = {name: infer_distribution(list(column.values())) for name, column in plotted.items()}
    create = _optional.load("optuna.trial", "ResultGrid.plot").create_trial
    trials = []
    for row, point in enumerate(points):
        names = [name for name, column in plotted.items() if row in column]
        trials.append(
            create(
                value=point.value,
                params={labels[name]: plotted[name][row] for name in names},
                distributions={labels[name]: distributions[name] for name in names},
            )
        )
    return Study(
        create_study(trials, mode),
        names=tuple(labels.values()),
        common=tuple(label for name, label in labels.items() if name not in partial),
        constant=tuple(constant),
        partial=partial,
        excessive=tuple(excessive),
    )


def create_study(trials: Iterable[Any], mode: str) -> Any:
    """Return an Optuna study of finished trials, without a message in the log."""
    optuna = _optional.load("optuna", "ResultGrid.plot")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="minimize" if mode == "min" else "maximize")
        study.add_trials(trials)
    finally:
        optuna.logging.set_verbosity(before)
    return study


def plot_values(values: Sequence[Any]) -> list[Any] | None:
    """Return the values of a parameter as a plot has them: finite numbers, or else categories as labels.

    Returns:
        The values; None if there are too many categories.
    """
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        try:
            if all(math.isfinite(value) for value in values):
                return list(values)
        except OverflowError:  # an integer beyond the range of floats
            pass
    texts = [value if isinstance(value, str) else _ADDRESS.sub("", repr(value)) for value in values]
    categories = list(dict.fromkeys(texts))
    if len(categories) > MAX_CATEGORIES:
        return None
    labels = labels_of(categories, cut_front=False)
    return [labels[text] for text in texts]


def infer_distribution(values: Sequence[Any]) -> Any:
    """Return the Optuna distribution that values of `plot_values` could have come from.

    The range of numbers is logarithmic if they are positive, span more than two decades and are mostly small: samples
    of a uniform distribution also span decades, but half of them are in the upper half.
    """
    distributions = _optional.load("optuna.distributions", "ResultGrid.plot")
    if isinstance(values[0], str):
        return distributions.CategoricalDistribution(sorted(set(values)))
    low, high = min(values), max(values)
    log = low > 0 and high / LOG_SPAN > low and statistics.median(values) < high / 4
    integers = all(isinstance(value, int) for value in values)
    kind = distributions.IntDistribution if integers else distributions.FloatDistribution
    return kind(low, high, log=log)


def labels_of(names: Iterable[str], *, cut_front: bool = True) -> dict[str, str]:
    """Return a short unique label for each name, with HTML escaped.

    Args:
        names: Different names.
        cut_front: Whether they are paths, which lose their common folder and are shortened at the front.
    """
    names = list(names)
    shared = _common_folder(names) if cut_front and len(names) > 1 else ""
    labels: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        text = name.removeprefix(shared)
        short = text
        if len(text) > MAX_LABEL:
            short = "…" + text[1 - MAX_LABEL :] if cut_front else text[: MAX_LABEL - 1] + "…"
        unique, number = short, 2
        while unique in used:
            unique, number = f"{short} ({number})", number + 1
        used.add(unique)
        labels[name] = html.escape(unique, quote=False)
    return labels


def _common_folder(names: Sequence[str]) -> str:
    """Return the folder that paths have in common, with a slash at its end."""
    levels = zip(*(name.split("/")[:-1] for name in names), strict=False)
    return "".join(f"{level[0]}/" for level in takewhile(lambda level: len(set(level)) == 1, levels))


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python value."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
