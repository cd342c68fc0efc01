"""The HTML of objects in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import skate
from skate import serve, tune
from skate._base.html_tables import MAX_TEXT, facts_html, table_html
from skate.train import Checkpoint, Result


def test_all_texts_are_escaped_and_long_ones_shortened() -> None:
    text = facts_html("<t>", {"<n>": "<v>", "none": None}, table_html(["<c>"], [["<d>"]], note="<e>"))
    for letter in "tnvcde":
        assert f"&lt;{letter}&gt;" in text
    assert "none" not in text
    assert f">{'x' * (MAX_TEXT - 1)}…<" in table_html([], [["x" * 1000]])


@pytest.fixture
def session() -> Any:
    with skate.init(engine="inline", num_cpus=1) as context:
        yield context


def test_references_show_their_id_and_state(session: Any) -> None:
    @skate.remote
    def fail() -> None:
        raise ValueError("mine")

    ready, failed = skate.put(1), fail.remote()
    assert ready.hex() in ready._repr_html_()
    assert "state: ready" in ready._repr_html_()
    assert "state: failed" in failed._repr_html_()
    assert "state" not in skate.ObjectRef.from_random()._repr_html_()


def test_actors_show_their_class_and_methods(session: Any) -> None:
    @skate.remote
    class Counter:
        def add(self) -> None: ...

        def _hidden(self) -> None: ...

    handle = Counter.remote()
    text = handle._repr_html_()
    assert "class: Counter" in text
    assert handle._actor_id.hex() in text
    assert "methods: add<" in text


def test_the_context_of_a_session_shows_its_engine(session: Any) -> None:
    assert "engine: inline" in session._repr_html_()


def test_a_dataset_shows_its_columns_without_running_its_plan() -> None:
    def never(row: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("the plan ran")

    text = skate.data.range(10)._repr_html_()
    assert "id<br>int64" in text
    assert "not materialized" in text
    assert "Map(never)" in skate.data.range(10).map(never)._repr_html_()


def test_a_materialized_dataset_shows_rows_escaped() -> None:
    rows = [{"name": f"<b>{index}", "n": index} for index in range(30)]
    text = skate.data.from_items(rows).materialize()._repr_html_()
    assert "&lt;b&gt;0<" in text
    assert "&lt;b&gt;29<" in text
    assert "&lt;b&gt;15<" not in text
    assert "10 of 30 rows" in text


def test_a_result_shows_metrics_checkpoint_and_error(tmp_path: Path) -> None:
    result = Result({"loss": 0.123456789}, Checkpoint(str(tmp_path)), ValueError("<x>"), "/runs/<one>")
    text = result._repr_html_()
    assert "error: ValueError" in text
    assert "/runs/&lt;one&gt;" in text
    assert "0.123457" in text
    assert str(tmp_path) in text


def test_a_result_of_a_trial_shows_what_it_has_reported() -> None:
    text = tune.Result({"pid": 4711, "date": "today", "loss": 0.5}, None, None, "/runs/one")._repr_html_()
    assert "loss" in text
    assert "4711" not in text
    assert "today" not in text


def test_results_of_trials_are_sorted_and_the_best_is_bold(session: Any, tmp_path: Path) -> None:
    def objective(config: dict[str, Any]) -> None:
        if config["a"] == 3:
            raise ValueError("mine")
        tune.report({"loss": config["a"] * 0.5})

    grid = tune.Tuner(
        objective,
        param_space={"a": tune.grid_search([2, 1, 3])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    text = grid._repr_html_()
    head, first, second, third = text.split("<tr>")[1:]
    assert "<th" in head
    assert "loss" in head
    assert "bold" in first
    assert ">0.5<" in first
    assert "bold" not in second
    assert ">1<" in second
    assert "ERROR" in third
    assert "errors: 1" in text


def test_an_application_lists_its_deployments() -> None:
    @serve.deployment(num_replicas=2)
    class Model: ...

    @serve.deployment
    class Ingress:
        def __init__(self, models: list[Any]) -> None: ...

    model = Model.bind()
    text = Ingress.bind([model, {"other": Model.options(name="<Other>").bind()}])._repr_html_()
    rows = text.split("<tr>")[2:]
    assert ["Ingress" in rows[0], "Model" in rows[1], "&lt;Other&gt;" in rows[2]] == [True] * 3
    assert "ingress" in rows[0]
    assert ">2<" in rows[1]
    assert "name: Model" in Model._repr_html_()


def test_a_handle_shows_its_deployment_and_has_no_other_methods_of_notebooks() -> None:
    handle: Any = serve.handle.DeploymentHandle("Model", "app")
    assert "deployment: Model &nbsp;application: app<" in handle._repr_html_()
    assert "method: predict" in handle.predict._repr_html_()
    for name in ("_ipython_canary_method_should_not_exist_", "_ipython_display_", "_repr_mimebundle_"):
        assert not hasattr(handle, name)
