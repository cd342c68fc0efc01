"""The progress of an experiment: trials by state, the best result, and the table."""

from __future__ import annotations

import io
import logging

import pytest

from skate._api.progress.terminal import render_lines
from skate.tune._views.progress import Progress
from skate.tune.experiment import Trial


def make(number: int, status: str, **result: float) -> Trial:
    trial = Trial("train", trial_id=str(number), evaluated_params={"config/lr": number / 10})
    trial.set_status(status)
    if result:
        trial.update_last_result(dict(result))
    return trial


@pytest.fixture
def progress() -> Progress:
    progress = Progress("search", "/runs/search", "loss", "min", total=4)
    for trial in (
        make(1, Trial.RUNNING, loss=0.5),
        make(2, Trial.TERMINATED, loss=0.25),
        make(3, Trial.RUNNING),
    ):
        progress.update(trial)
        if trial.last_result:
            progress.compare(trial, trial.last_result)
    return progress


def test_one_line_has_the_states_and_the_best_result(progress: Progress) -> None:
    assert progress.describe() == "2 running, 1 terminated; best loss 0.25 (train_2: lr=0.2)"


def test_values_that_are_not_finite_are_never_the_best(progress: Progress) -> None:
    progress.compare(make(4, Trial.RUNNING), {"loss": float("nan")})
    progress.compare(make(5, Trial.RUNNING), {"loss": float("-inf")})
    assert "best loss 0.25" in progress.describe()


def test_the_table_lists_running_trials(progress: Progress) -> None:
    text = "\n".join(line for line, _ in render_lines([progress.view()], io.StringIO(), 100))
    assert "1 of 4 trials" in text
    assert "train_1" in text
    assert "lr=0.1" in text
    assert "train_2  " not in text


def test_the_summary_counts_last_results(progress: Progress, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="skate.tune")
    trials = [make(1, Trial.TERMINATED, loss=0.5), make(2, Trial.ERROR)]
    summary = Progress("search", "/runs/search", "loss", "min")
    summary.compare(trials[0], {"loss": 0.1})
    summary.on_experiment_end(trials)
    assert "1 terminated, 1 error; best loss 0.5" in caplog.text
