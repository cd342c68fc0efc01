"""Plots and the HTML report of an experiment."""

from __future__ import annotations

import html
import importlib.util
import math
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate import tune
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._views import figures, study
from skate.tune._views.report import Report as ReportPage
from skate.tune._workers.messages import Assignment, Report, WorkerSettings
from skate.tune._workers.trial_files import TrialFiles
from skate.tune.experiment import Trial

plotly = pytest.importorskip("plotly")
optuna = pytest.importorskip("optuna")

ENGINES = ["inline"]  # a report is made after the experiment
ALL = {"learning_curves", "history", "parallel_coordinates", "importance", "slices"}


@pytest.fixture(autouse=True)
def quick_importance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute importance with PED-ANOVA: fANOVA takes a second."""
    monkeypatch.setattr(figures, "MAX_FANOVA_TRIALS", 0)


@pytest.fixture
def make_grid(tmp_path: Path) -> Callable[..., tune.ResultGrid]:
    """Return a grid of trials that are stored as a run would store them: each has a configuration and its values."""

    def make(
        *rows: tuple[dict[str, Any], list[float]], metric: str | None = "loss", mode: str | None = "min"
    ) -> tune.ResultGrid:
        folder = ExperimentFolder(tmp_path / "by hand")
        folder.create()
        trials = []
        for number, (config, values) in enumerate(rows):
            trial = Trial("train", config=config, trial_id=f"{number:03}")
            folder.create_trial(trial)
            assignment = Assignment(trial.trial_id, "train", "", config, folder.trial_path(trial))
            files = TrialFiles(assignment, WorkerSettings("by hand"))
            for step, value in enumerate(values, 1):
                result = {"training_iteration": step, "loss": value}
                files.hold(Report(result))
                files.write(is_last=False)
                trial.update_last_result(result)
            trial.set_status(Trial.TERMINATED)
            trials.append(trial)
        return tune.ResultGrid(
            tune.ExperimentAnalysis(folder.path, trials=trials, default_metric=metric, default_mode=mode)
        )

    return make


def spread(count: int, steps: int = 3) -> list[tuple[dict[str, Any], list[float]]]:
    """Return trials of which the first is the best."""
    return [
        ({"lr": 1.0 + i, "width": i % 3}, [10.0 + i - step for step in range(steps)]) for i in range(count)
    ]


class Elements(HTMLParser):
    """Collects the elements of a page, and the text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data + "\n"


# ------------------------------------------------------------ an experiment that has run


def train(config: dict[str, Any]) -> None:
    if config["optimizer"]["name"] == "broken":
        raise RuntimeError("no <b>such</b> optimizer")
    for step in range(1, 5):
        tune.report({"loss": abs(math.log10(config["optimizer"]["lr"]) + 2) + 1 / step})


@pytest.fixture
def ran(engine: Any, fit: Callable[..., tune.ResultGrid]) -> tune.ResultGrid:
    random.seed(0)
    return fit(
        train,
        {
            "optimizer": {
                "name": tune.grid_search(["sgd", "adam", "broken"]),
                "lr": tune.loguniform(1e-4, 1),
            },
            "layers": [1, 2],
        },
        metric="loss",
        mode="min",
        num_samples=3,
        run={"verbose": 0},
    )


def test_an_experiment_has_all_plots_and_one_file_with_them(ran: tune.ResultGrid, tmp_path: Path) -> None:
    report = ran.plot()
    assert set(report.figures) == ALL
    assert not report.missing
    best = ran.get_best_result()
    assert report.summary["trials"] == "9 (3 error, 6 terminated)"
    assert report.summary["smallest loss"].startswith(f"{best.metrics['loss']:.6g} ")
    assert report.summary["path"] == ran.experiment_path
    file = report.save(tmp_path / "report.html")
    text = file.read_text(encoding="utf-8")
    assert text == report.to_html()
    assert text.count("plotly.js v") == 1, "the library is in the file once"
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text), "nothing is loaded"
    page = Elements(text)
    for expected in (
        "experiment",
        "best configuration",
        "Errors",
        "no <b>such</b> optimizer",
        "adam",
        "[1, 2]",
    ):
        assert expected in page.text
    assert page.tags.count("table") == 2
    assert all(f'id="figure-{name}"' in text for name in ALL)


def test_the_text_of_a_report_is_for_terminals_and_logs(ran: tune.ResultGrid) -> None:
    report = ran.plot()
    assert repr(report) == str(report)
    lines = str(report).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "experiment",
        "trials",
        "smallest loss",
        "best configuration",
        "important parameters",
        "path",
    ]
    assert max(map(len, lines)) < 250


def test_a_notebook_shows_the_whole_page_in_a_frame(ran: tune.ResultGrid) -> None:
    report = ran.plot()
    frame = report._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(source) == report.to_html()


def test_another_metric_can_be_plotted(ran: tune.ResultGrid) -> None:
    report = ran.plot("training_iteration", "max")
    assert report.summary["largest training_iteration"].startswith("4 ")
    assert "same value" in report.missing["importance"]


# ------------------------------------------------------------ learning curves


def test_the_best_curve_is_highlighted_and_above_the_others(make_grid: Any) -> None:
    figure = make_grid(*spread(4)).plot().figures["learning_curves"]
    assert [len(trace.x) for trace in figure.data] == [3, 3, 3, 3]
    *others, best = figure.data
    assert best.name == "best: train_000"
    assert best.line.width > max(trace.line.width for trace in others)
    assert (list(best.x), list(best.y)) == ([1, 2, 3], [10, 9, 8])
    assert "all trials" in figure.layout.title.text


def test_of_many_trials_the_best_curves_are_shown_and_the_title_says_so(make_grid: Any) -> None:
    count = figures.MAX_CURVES + 5
    figure = make_grid(*spread(count)).plot().figures["learning_curves"]
    assert len(figure.data) == figures.MAX_CURVES
    assert f"best {figures.MAX_CURVES} of {count} trials" in figure.layout.title.text
    assert f"train_{count - 1:03}" not in {trace.name for trace in figure.data}


def test_a_long_curve_is_thinned_out_but_keeps_its_ends(
    make_grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_CURVE_POINTS", 10)
    (trace,) = make_grid(({}, [float(i) for i in range(95)])).plot().figures["learning_curves"].data
    assert len(trace.x) <= 11
    assert (trace.x[0], trace.x[-1]) == (1, 95)


def test_values_that_are_not_finite_are_left_out_of_curves(make_grid: Any) -> None:
    (trace,) = make_grid(({}, [3.0, math.nan, math.inf, 1.0])).plot().figures["learning_curves"].data
    assert (list(trace.x), list(trace.y)) == ([1, 4], [3, 1])


def test_single_reports_have_no_curves(make_grid: Any) -> None:
    report = make_grid(*spread(3, steps=1)).plot()
    assert "once" in report.missing["learning_curves"]
    assert "once" in Elements(report.to_html()).text


# ------------------------------------------------------------ other plots


def test_the_best_value_so_far_never_gets_worse(make_grid: Any) -> None:
    rows = [({"x": value}, [value]) for value in (3.0, 5.0, 2.0, 4.0)]
    best = make_grid(*rows).plot().figures["history"].data[1]
    assert list(best.y) == [3, 3, 2, 2]
    best = make_grid(*rows, mode="max").plot().figures["history"].data[1]
    assert list(best.y) == [3, 5, 5, 5]


@pytest.mark.parametrize("method", ["fANOVA", "PED-ANOVA"])
def test_the_parameter_that_matters_is_the_most_important(
    make_grid: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(figures, "MAX_FANOVA_TRIALS", 100)
    if method == "fANOVA":
        pytest.importorskip("sklearn")
    else:
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name)
        )
    rng = random.Random(0)
    rows = [({"a": rng.random(), "b": rng.random()}, []) for _ in range(40)]
    report = make_grid(*((config, [10 * config["a"] + config["b"]]) for config, _ in rows)).plot()
    figure = report.figures["importance"]
    assert f"({method})" in figure.layout.title.text
    share = dict(zip(figure.data[0].y, figure.data[0].x, strict=True))
    assert share["a"] > share["b"]
    assert report.summary["important parameters"].startswith("a ")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([({"x": 1}, [1.0])], "at least two trials"),
        (
            [({"x": 1}, [1.0]), ({"x": 1}, [2.0])],
            "differs between them. Constant: x.",
        ),
        ([({"x": 1}, [1.0]), ({"x": 2}, [1.0])], "All trials have the same value"),
        ([({}, [1.0]), ({}, [2.0])], "needs a parameter that all trials have"),
    ],
)
def test_the_page_says_why_there_is_no_importance(
    make_grid: Any, rows: list[tuple[dict[str, Any], list[float]]], why: str
) -> None:
    report = make_grid(*rows).plot()
    assert "importance" not in report.figures
    assert why in report.missing["importance"]
    assert why in Elements(report.to_html()).text


def test_constant_parameters_are_named_and_not_plotted(make_grid: Any) -> None:
    report = make_grid(*(({"lr": config["lr"], "seed": 7}, values) for config, values in spread(4))).plot()
    assert report.notes["parallel_coordinates"] == ["Constant: seed."]
    assert "seed" not in str(report.figures["parallel_coordinates"].layout)


def test_of_many_parameters_the_most_important_are_plotted(make_grid: Any) -> None:
    rng = random.Random(1)
    rows = [({f"p{i}": rng.random() for i in range(figures.MAX_AXES + 4)}, []) for _ in range(20)]
    report = make_grid(*((config, [config["p3"]]) for config, _ in rows)).plot()
    axes = report.figures["parallel_coordinates"].layout.xaxis.ticktext
    assert len(axes) == 1 + figures.MAX_AXES
    assert "p3" in axes
    assert report.notes["parallel_coordinates"] == ["The 10 most important of 14 parameters are shown."]


def test_of_many_trials_the_best_are_in_the_plot_of_parameters(
    make_grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_LINES", 5)
    figure = make_grid(*spread(9)).plot().figures["parallel_coordinates"]
    assert "best 5 of 9 trials" in figure.layout.title.text
    assert len([trace for trace in figure.data if trace.mode == "lines"]) == 5


# ------------------------------------------------------------ parameters of all kinds


def test_a_nested_configuration_has_paths_as_names(make_grid: Any) -> None:
    rows = [({"loop": {"opt": {"lr": 0.1 * i, "name": "ab"[i % 2]}}}, [float(i)]) for i in range(1, 5)]
    report = make_grid(*rows).plot()
    assert set(report.figures["parallel_coordinates"].layout.xaxis.ticktext) == {"loss", "lr", "name"}
    assert "loop/opt/lr" in report.columns


def test_unhashable_and_strange_values_are_categories(make_grid: Any) -> None:
    values = [[64, 64], {1}, None, True, "relu", np.float64(0.5), math.inf, 10**400, print, object()]
    report = make_grid(*(({"x": value}, [float(i)]) for i, value in enumerate(values))).plot()
    assert {"parallel_coordinates", "slices", "importance"} <= set(report.figures)
    assert "0x" not in str(report.figures["parallel_coordinates"].to_dict())


def test_a_parameter_of_some_trials_is_plotted_and_named(make_grid: Any) -> None:
    rows = [({"kind": "a", "depth": i} if i % 2 else {"kind": "b", "width": i}, [float(i)]) for i in range(6)]
    report = make_grid(*rows).plot()
    assert report.notes["importance"] == ["Set in some trials only: width, depth."]
    assert set(report.figures) >= {"parallel_coordinates", "importance"}


def test_a_parameter_with_too_many_categories_is_left_out(make_grid: Any) -> None:
    rows = [({"path": f"/data/{i}", "lr": 1.0 + i}, [float(i)]) for i in range(study.MAX_CATEGORIES + 1)]
    report = make_grid(*rows).plot()
    assert report.notes["importance"] == ["Too many different values: path."]


@pytest.mark.parametrize(
    ("values", "kind", "log"),
    [
        ([1e-4, 1e-3, 1e-1], "FloatDistribution", True),
        ([1, 2, 1000], "IntDistribution", True),
        ([0.1, 0.2, 0.9], "FloatDistribution", False),
        ([1, 2.5], "FloatDistribution", False),
        ([-1.0, 1e-4, 100.0], "FloatDistribution", False),
        ([0.001, 0.3, 0.4, 0.5], "FloatDistribution", False),
        (["adam", "sgd"], "CategoricalDistribution", None),
    ],
)
def test_distributions_are_inferred_from_values(values: list[Any], kind: str, log: bool | None) -> None:
    found = study.infer_distribution(values)
    assert type(found).__name__ == kind
    assert getattr(found, "log", None) == log


PARAMETERS = st.one_of(
    st.floats(),
    st.integers(),
    st.booleans(),
    st.none(),
    st.text(max_size=30),
    st.lists(st.integers(), max_size=3),
)


@given(st.lists(PARAMETERS, min_size=1, max_size=25))
def test_any_values_fit_their_distribution(values: list[Any]) -> None:
    plotted = study.plot_values(values)
    if plotted is not None and len(set(plotted)) > 1:
        distribution = study.infer_distribution(plotted)
        assert all(distribution._contains(distribution.to_internal_repr(value)) for value in plotted)


@given(st.lists(st.text(alphabet="ab/<", min_size=1, max_size=30), unique=True, max_size=20))
def test_labels_are_short_and_unique(names: list[str]) -> None:
    labels = study.labels_of(names)
    assert len(set(labels.values())) == len(names)
    assert all(len(html.unescape(label)) <= study.MAX_LABEL + 5 for label in labels.values())
    assert all("<" not in label for label in labels.values())


# ------------------------------------------------------------ bad input


def test_hostile_texts_are_escaped(make_grid: Any) -> None:
    evil = "</script><script>alert(1)</script>"
    grid = make_grid(*(({evil: value, "x": f"{evil}{value}"}, [value, value]) for value in (1.0, 2.0, 3.0)))
    grid._trials[0].error = RuntimeError(evil)
    grid._trials[0].custom_trial_name = evil
    report = grid.plot()
    text = report.to_html()
    assert evil not in text
    assert evil in Elements(text).text
    harmless = Elements(make_grid(*spread(3)).plot().to_html())
    assert Elements(text).tags.count("script") == harmless.tags.count("script")
    assert evil[:10] in report.summary["smallest loss"]
    assert "&lt;" not in str(report)


def test_a_metric_is_needed(make_grid: Any) -> None:
    with pytest.raises(
        ValueError, match=r"no `metric` and `mode` is set: pass plot\(metric=.*reported \['loss'\]"
    ):
        make_grid(*spread(2), metric=None, mode=None).plot()
    with pytest.raises(ValueError, match=r"no `mode` is set"):
        make_grid(*spread(2), mode=None).plot()
    with pytest.raises(ValueError, match=r"no trial has reported 'los'.*Did you mean 'loss'\?"):
        make_grid(*spread(2)).plot("los")
    with pytest.raises(ValueError, match="`mode` must be"):
        make_grid(*spread(2)).plot(mode="most")


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_an_experiment_without_values_has_a_page_that_says_so(make_grid: Any, values: list[float]) -> None:
    report: ReportPage = make_grid(({"x": 1}, values), ({"x": 2}, values)).plot()
    assert set(report.missing) == ALL
    assert not report.figures
    assert "no trial has a finite value" in report.summary["smallest loss"]
    assert "No trial has a finite value" in Elements(report.to_html()).text


def test_an_empty_experiment_has_a_page(make_grid: Any) -> None:
    report = make_grid().plot()
    assert report.summary["trials"] == "0"
    assert "Trials" not in Elements(report.to_html()).text


def test_trials_without_the_metric_are_in_the_table_after_the_others(make_grid: Any) -> None:
    report = make_grid(({"x": 1}, []), ({"x": 2}, [math.inf]), ({"x": 3}, [1.0]), ({"x": 4}, [2.0])).plot()
    assert [row["x"] for row in report.trials] == ["3", "4", "1", "2"]
    assert [row["loss"] for row in report.trials] == ["1", "2", "", "inf"]
    assert len(report.figures["history"].data[0].y) == 2


def test_missing_libraries_are_named_with_the_extra(make_grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = make_grid(*spread(2))
    monkeypatch.setattr("skate.air._optional._is_installed", lambda module: module != "plotly")
    with pytest.raises(ImportError, match=r"^ResultGrid\.plot needs plotly: pip install 'skate\[tune\]'$"):
        grid.plot()
