"""The plots of an experiment, made with Optuna and Plotly."""

from __future__ import annotations

import html
import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skate.air import _optional
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._views.study import LOG_SPAN, Point, Study, build_study, create_study, parameters_of
from skate.tune.experiment import Trial
from skate.tune.result import TRAINING_ITERATION
from skate.tune.search._space import finite_number

MAX_CURVES = 30
MAX_CURVE_POINTS = 1000  # a longer curve is subsampled
MAX_LINES = 300  # trials in the plot of parallel coordinates, which has an element per trial
MAX_AXES = 10  # parameters in one plot
MAX_SLICES = 5  # parameters side by side
MAX_FANOVA_TRIALS = 200

# These colors are readable on a light and on a dark background.
GRAY, BLUE, ORANGE = "#a3acb9", "#2b7fd4", "#e8590c"
SCALE = [(0.0, GRAY), (1.0, BLUE)]

_MAX_HOVER = 12


@dataclass
class Figures:
    """The plots of an experiment.

    Attributes:
        figures: Plotly figures by name.
        missing: Why a plot does not exist, by its name.
        notes: What a plot leaves out, by its name.
        importance: The importance of parameters, most important first; their sum is one.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)


def draw(folder: ExperimentFolder, points: Sequence[Point], metric: str, mode: str) -> Figures:
    """Return the plots of some trials.

    Args:
        folder: The experiment's folder, which has their histories.
        points: Trials with a finite value, in the order in which they were created.
        metric: The metric.
        mode: "min" or "max".
    """
    drawn = Figures()
    if not points:
        for name in ("learning_curves", "history", "parallel_coordinates", "importance", "slices"):
            drawn.missing[name] = f"No trial has a finite value of {metric!r}."
        return drawn
    title = html.escape(metric, quote=False)
    _draw_curves(drawn, folder, points, metric, mode, title)
    study = build_study(points, mode)
    _draw_history(drawn, study, title)
    _draw_importance(drawn, study, points, mode)
    _draw_parameters(drawn, study, points, mode, title)
    return drawn


# ------------------------------------------------------------ learning curves


def _draw_curves(
    drawn: Figures, folder: ExperimentFolder, points: Sequence[Point], metric: str, mode: str, title: str
) -> None:
    go = _optional.load("plotly.graph_objects", "ResultGrid.plot")
    ranked = _ranked(points, mode)[:MAX_CURVES]
    curves = {point.trial: curve_of(folder, point.trial, metric) for point in ranked}
    if all(len(steps) < 2 for steps, _ in curves.values()):
        drawn.missing["learning_curves"] = "Each trial reported its metric once, so there are no curves."
        return
    figure = go.Figure()
    best = ranked[0].trial
    for trial in reversed(curves):  # the best one is drawn last, above the others
        steps, values = curves[trial]
        is_best = trial is best
        figure.add_scatter(
            x=steps,
            y=values,
            name=html.escape(f"best: {trial}" if is_best else str(trial), quote=False),
            mode="lines+markers" if len(steps) < 2 else "lines",
            line={"color": ORANGE if is_best else BLUE, "width": 3 if is_best else 1.2},
            opacity=1.0 if is_best else 0.45,
            showlegend=is_best,
            text=_describe(trial),
            hovertemplate="%{text}<br>" + title + " %{y:.5g} after %{x} iterations<extra></extra>",
        )
    values = [value for _, column in curves.values() for value in column]
    is_log = min(values) > 0 and max(values) / LOG_SPAN > min(values)
    shown = f"best {len(curves)} of {len(points)} trials" if len(curves) < len(points) else "all trials"
    figure.update_layout(
        title={"text": f"Learning curves ({shown})"},
        xaxis={"title": {"text": TRAINING_ITERATION}},
        yaxis={"title": {"text": title}, "type": "log" if is_log else "linear"},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    drawn.figures["learning_curves"] = figure


def curve_of(folder: ExperimentFolder, trial: Trial, metric: str) -> tuple[list[float], list[float]]:
    """Return the iterations of a trial and the finite values of a metric after them."""
    rows: list[tuple[float, float]] = []
    for number, entry in enumerate(folder.history(trial)[:], 1):
        value = finite_number(entry["metrics"].get(metric))
        if value is not None:
            step = finite_number(entry["metrics"].get(TRAINING_ITERATION))
            rows.append((number if step is None else step, value))
    stride = -(-len(rows) // MAX_CURVE_POINTS) or 1
    rows = [*rows[:-1:stride], *rows[-1:]]
    return [step for step, _ in rows], [value for _, value in rows]


def _ranked(points: Sequence[Point], mode: str) -> list[Point]:
    """Return the points sorted by value, the best first. Equal points keep their order."""
    sign = -1 if mode == "max" else 1
    return sorted(points, key=lambda point: sign * point.value)


def _describe(trial: Trial) -> str:
    """Return the name and the parameters of a trial, for the hover label."""
    parameters = list(parameters_of(trial).items())
    lines = [f"<b>{html.escape(str(trial), quote=False)}</b>"]
    for name, value in parameters[:_MAX_HOVER]:
        text = f"{value:.5g}" if isinstance(value, float) else str(value)
        lines.append(html.escape(f"{name} = {text[:60]}", quote=False))
    return "<br>".join([*lines, "…"] if len(parameters) > _MAX_HOVER else lines)


# ------------------------------------------------------------ Optuna's plots


def _draw_history(drawn: Figures, study: Study, title: str) -> None:
    visualization = _optional.load("optuna.visualization", "ResultGrid.plot")
    figure = visualization.plot_optimization_history(study.optuna, target_name=title)
    figure.update_traces(marker_color=BLUE, selector={"mode": "markers"})
    figure.update_traces(line_color=ORANGE, selector={"mode": "lines"})
    figure.update_layout(title={"text": "Best value so far"})
    drawn.figures["history"] = figure


def _draw_importance(drawn: Figures, study: Study, points: Sequence[Point], mode: str) -> None:
    why = _why_no_importance(study, points)
    if why is None:
        library = _optional.load("optuna.importance", "ResultGrid.plot")
        evaluator, method = _evaluator(study, points)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna 4 calls PED-ANOVA experimental
                drawn.importance = library.get_param_importances(
                    study.optuna, evaluator=evaluator, params=list(study.common)
                )
        except (ArithmeticError, RuntimeError, ValueError) as error:
            why = f"The importance of parameters could not be computed: {error}"
    if why is not None:
        drawn.missing["importance"] = why
        return
    figure = _plot_importance(study, drawn.importance, mode)
    figure.update_traces(marker_color=BLUE)
    figure.update_xaxes(title_text="importance")
    figure.update_yaxes(title_text="")
    figure.update_layout(title={"text": f"Importance of parameters ({method})"})
    drawn.figures["importance"] = figure
    drawn.notes["importance"] = _omissions(study)


def _plot_importance(study: Study, shares: dict[str, float], mode: str) -> Any:
    """Plot importances that are already computed with Optuna.

    Optuna copies all trials for each parameter to find its distribution, so the plot gets a study with one trial.
    """
    library = _optional.load("optuna.importance", "ResultGrid.plot")

    class Known(library.BaseImportanceEvaluator):  # type: ignore[misc, name-defined]
        def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
            return shares

    plot = _optional.load("optuna.visualization", "ResultGrid.plot").plot_param_importances
    first = create_study(study.optuna.get_trials(deepcopy=False)[:1], mode)
    return plot(first, evaluator=Known(), params=list(shares))


def _why_no_importance(study: Study, points: Sequence[Point]) -> str | None:
    if len(points) < 2:
        return "The importance of parameters needs at least two trials with a finite value."
    if not study.common:
        needed = "Importance needs a parameter that all trials have and that differs between them."
        return " ".join([needed, *_omissions(study)])
    if len({point.value for point in points}) == 1:
        return "All trials have the same value, so the importance of parameters cannot be computed."
    return None


def _evaluator(study: Study, points: Sequence[Point]) -> tuple[Any, str]:
    """Return Optuna's measure of importance, and its name.

    fANOVA is better for few trials. It needs scikit-learn, and time that grows with trials and parameters.
    """
    importance = _optional.load("optuna.importance", "ResultGrid.plot")
    is_small = len(points) <= MAX_FANOVA_TRIALS and len(study.common) <= MAX_AXES
    if is_small and importlib.util.find_spec("sklearn") is not None:
        return importance.FanovaImportanceEvaluator(seed=0), "fANOVA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna 4 calls it experimental
        return importance.PedAnovaImportanceEvaluator(), "PED-ANOVA"


def _draw_parameters(drawn: Figures, study: Study, points: Sequence[Point], mode: str, title: str) -> None:
    """Draw the plots that have an axis for each parameter. If there are too many, only the important ones are drawn."""
    optuna = _optional.load("optuna", "ResultGrid.plot")
    visualization = _optional.load("optuna.visualization", "ResultGrid.plot")
    handles_missing = int(optuna.__version__.partition(".")[0]) >= 5
    candidates = study.names if handles_missing else study.common
    if not candidates:
        for name in ("parallel_coordinates", "slices"):
            drawn.missing[name] = " ".join(["No parameter differs between the trials.", *_omissions(study)])
        return
    names = sorted(candidates, key=lambda name: -drawn.importance.get(name, 0.0))[:MAX_AXES]
    notes = _omissions(study)
    if len(names) < len(candidates):
        which = "most important" if drawn.importance else "first"
        notes.append(f"The {len(names)} {which} of {len(candidates)} parameters are shown.")

    lines, parallel = points, study.optuna
    if len(points) > MAX_LINES:
        best = set(map(id, _ranked(points, mode)[:MAX_LINES]))
        rows = [row for row, point in enumerate(points) if id(point) in best]
        lines = [points[row] for row in rows]
        trials = study.optuna.get_trials(deepcopy=False)
        parallel = create_study([trials[row] for row in rows], mode)
    figure = visualization.plot_parallel_coordinate(parallel, params=names, target_name=title)
    _color_lines(figure, [point.value for point in lines], mode)
    shown = f" (best {len(lines)} of {len(points)} trials)" if len(lines) < len(points) else ""
    figure.update_layout(title={"text": f"Parameters and {title}{shown}"})
    drawn.figures["parallel_coordinates"] = figure
    drawn.notes["parallel_coordinates"] = notes

    figure = visualization.plot_slice(study.optuna, params=names[:MAX_SLICES], target_name=title)
    figure.update_traces(marker_colorscale=SCALE)
    if len(names) > MAX_SLICES:
        which = "most important" if drawn.importance else "first"
        drawn.notes["slices"] = [f"The {MAX_SLICES} {which} parameters are shown."]
    figure.update_layout(title={"text": f"{title[:1].upper()}{title[1:]} by parameter"})
    drawn.figures["slices"] = figure


def _color_lines(figure: Any, values: Sequence[float], mode: str) -> None:
    """Color the line of each trial by its value: the better, the more intense."""
    sample = _optional.load("plotly.colors", "ResultGrid.plot").sample_colorscale
    low, high = min(values), max(values)
    span = high - low or 1.0
    shares = [(value - low) / span for value in values]
    if mode == "min":
        shares = [1 - share for share in shares]
    if any(trace.type == "parcoords" for trace in figure.data):  # Optuna 4 has one element for all trials
        figure.update_traces(line={"colorscale": SCALE, "reversescale": mode == "min"})
        return
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for trace, color in zip(lines, sample([GRAY, BLUE], shares), strict=True):
        trace.line.color = color
    figure.update_traces(
        marker={"colorscale": SCALE, "reversescale": mode == "min"}, selector={"mode": "markers"}
    )


def _omissions(study: Study) -> list[str]:
    groups: Mapping[str, Sequence[str]] = {
        "Constant": study.constant,
        "Too many different values": study.excessive,
        "Set in some trials only": study.partial,
    }
    return [f"{why}: {', '.join(names)}." for why, names in groups.items() if names]
