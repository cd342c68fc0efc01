"""Results of trials, and comparisons of them, just after a run and from the experiment's folder."""

from __future__ import annotations

import math
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.result import AUTO_RESULT_KEYS

pytestmark = pytest.mark.ray_more

PEAK = 100


def train(config: dict[str, Any]) -> None:
    reports = [(1, 0, math.nan), (2, 0, 42), (3, PEAK, math.nan), (4, -PEAK, math.nan), (5, 0, math.nan)]
    for step, peak, sometimes in reports:
        metrics = {
            "score": step * config["id"],
            "peak": peak,
            "sometimes": sometimes,
            "nested": {"step": step},
        }
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step), encoding="utf-8")
            tune.report(metrics, checkpoint=tune.Checkpoint(folder) if step < 4 else None)


def read_step(checkpoint: tune.Checkpoint | None) -> int:
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        return int(Path(folder, "step").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made() -> dict[str, tune.ExperimentAnalysis]:
    return {}  # one experiment by engine


@pytest.fixture
def first(
    engine: str, made: dict[str, tune.ExperimentAnalysis], tmp_path_factory: pytest.TempPathFactory
) -> tune.ExperimentAnalysis:
    if engine not in made:
        made[engine] = tune.run(
            train,
            name="experiment",
            config={"id": tune.grid_search([1, 2, 3]), "optimizer": {"lr": 0.1}},
            metric="score",
            mode="max",
            storage_path=str(tmp_path_factory.mktemp("results")),
            verbose=0,
        )
    return made[engine]


@pytest.fixture(params=["memory", "folder", "file", "pickle"])
def analysis(request: pytest.FixtureRequest, first: tune.ExperimentAnalysis) -> tune.ExperimentAnalysis:
    if request.param == "memory":
        return first
    if request.param == "pickle":
        copied: tune.ExperimentAnalysis = pickle.loads(pickle.dumps(first))
        return copied
    path = first.experiment_path + ("/journal.jsonl" if request.param == "file" else "")
    return tune.ExperimentAnalysis(path, default_metric="score", default_mode="max")


class TestAnalysis:
    def test_the_best_trial_has_its_configuration_results_and_checkpoints(
        self, analysis: tune.ExperimentAnalysis
    ) -> None:
        best = analysis.best_trial
        assert analysis.best_config == best.config == {"id": 3, "optimizer": {"lr": 0.1}}
        assert analysis.best_result["score"] == 15
        assert analysis.best_result_df["nested/step"].tolist() == [5]
        assert list(analysis.best_dataframe["score"]) == [3, 6, 9, 12, 15]
        assert analysis.best_checkpoint == best.checkpoint
        assert read_step(analysis.get_best_checkpoint(best, "score", "min")) == 1
        assert read_step(analysis.get_best_checkpoint(best, "nested/step", "max")) == 3
        assert read_step(analysis.get_best_checkpoint(best, "sometimes")) == 2
        assert analysis.get_best_checkpoint(best, "unknown") is None
        assert read_step(analysis.get_last_checkpoint()) == 3

    def test_a_scope_says_which_results_of_a_trial_count(self, analysis: tune.ExperimentAnalysis) -> None:
        for scope, best in (("last", 1), ("all", 1), ("avg", 1)):
            found = analysis.get_best_config("score", "min", scope)
            assert found is not None
            assert found["id"] == best
        trial = analysis.get_best_trial("peak", "max", "all")
        assert trial is not None
        assert trial.metric_analysis["peak"]["max"] == PEAK
        assert trial.metric_analysis["score"]["avg"] == pytest.approx(3 * trial.config["id"])
        assert trial.last_result["peak"] == 0
        assert not analysis.get_best_trial("sometimes")
        assert analysis.get_best_trial("sometimes", filter_nan_and_inf=False)

    def test_tables_have_a_row_per_trial_and_flat_names(self, analysis: tune.ExperimentAnalysis) -> None:
        assert analysis.dataframe("peak", "max")["peak"].tolist() == [PEAK] * 3
        assert analysis.dataframe("peak", "min")["nested/step"].tolist() == [4] * 3
        assert analysis.dataframe("peak")["peak"].tolist() == [0] * 3
        assert analysis.dataframe("sometimes", "max")["nested/step"].tolist() == [2] * 3
        assert analysis.dataframe()["config/optimizer/lr"].tolist() == [0.1] * 3
        ids = [trial.trial_id for trial in analysis.trials]
        assert analysis.results_df.index.tolist() == list(analysis.trial_dataframes) == ids
        with pytest.raises(ValueError, match="`mode` is 'max' without a `metric`"):
            analysis.dataframe(mode="max")
        with pytest.raises(ValueError, match="mode"):
            analysis.dataframe(mode="bad")

    def test_configurations_are_listed_by_trial(self, analysis: tune.ExperimentAnalysis) -> None:
        trial = analysis.trials[1]
        assert analysis.get_all_configs()[trial.trial_id] == trial.config
        assert analysis.get_all_configs(prefix=True)[trial.trial_id] == {
            "config/id": 2,
            "config/optimizer/lr": 0.1,
        }


class TestResults:
    def test_a_text_of_results_leaves_out_what_tune_adds(self, first: tune.ExperimentAnalysis) -> None:
        results = tune.ResultGrid(first)
        text = repr(results)
        assert "'score': 15" in text
        for key in (*AUTO_RESULT_KEYS, "trial_id", "experiment_tag", "done"):
            assert f"'{key}'" not in text
        assert results[0].metrics["training_iteration"] == 5

    def test_a_result_is_read_from_the_folder_of_its_trial(self, first: tune.ExperimentAnalysis) -> None:
        result = tune.ResultGrid(first)[2]
        again = tune.Result.from_path(result.path)
        assert repr(again) == repr(result)
        assert again.metrics.keys() == result.metrics.keys()
        assert again.config == result.config
        assert again.checkpoint == result.checkpoint
        assert [each for each, _ in again.best_checkpoints] == [each for each, _ in result.best_checkpoints]
        assert read_step(again.get_best_checkpoint("score", "min")) == 1
        assert again.metrics_dataframe["nested/step"].tolist() == [1, 2, 3, 4, 5]
        with pytest.raises(RuntimeError, match="doesn't exist"):
            tune.Result.from_path(result.path + "-missing")
        with pytest.raises(RuntimeError, match="is not the folder of a trial"):
            tune.Result.from_path(Path(result.path).parent)
