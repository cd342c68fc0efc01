"""Reporters: when they report, and the table they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skate import tune
from skate.tune.experiment import Trial
from skate.tune.result_grid import ResultGrid


def make(number: int, status: str, **result: float) -> Trial:
    trial = Trial(
        "train", trial_id=str(number), config={"lr": number, "b": 2}, evaluated_params={"config/lr": number}
    )
    trial.set_status(status)
    trial.last_result = dict(result)
    return trial


TRIALS = [
    make(1, Trial.TERMINATED, loss=0.5, training_iteration=3),
    make(2, Trial.RUNNING, loss=0.25, training_iteration=1),
    make(3, Trial.PENDING),
]


def test_the_table_has_states_parameters_and_metrics() -> None:
    lines = tune.CLIReporter().describe(TRIALS).splitlines()
    assert lines[1] == "Number of trials: 3 (1 RUNNING, 1 PENDING, 1 TERMINATED)"
    assert lines[2].split() == ["Trial", "name", "status", "lr", "iter", "loss"]
    assert lines[3].split() == ["train_2", "RUNNING", "2", "1", "0.25"]


def test_columns_and_their_order_can_be_chosen() -> None:
    reporter = tune.CLIReporter(
        metric_columns={"loss": "error"}, parameter_columns=["b"], max_progress_rows=2, sort_by_metric=True
    )
    reporter.setup(metric="loss", mode="min")
    reporter.add_metric_column("training_iteration", "epochs")
    lines = reporter.describe(TRIALS).splitlines()
    assert lines[2].split() == ["Trial", "name", "status", "b", "error", "epochs"]
    assert [line.split()[0] for line in lines[3:]] == ["train_2", "train_1"]


def test_failed_trials_are_listed() -> None:
    failed = make(4, Trial.ERROR)
    failed.error = ValueError("broken")
    assert "train_4: ValueError" in tune.CLIReporter().describe([failed])


def test_tables_come_at_intervals_and_at_the_end() -> None:
    reporter = tune.CLIReporter(max_report_frequency=1000)
    assert [reporter.should_report([]) for _ in range(3)] == [True, False, False]
    assert reporter.should_report([], done=True)
    assert not tune.CLIReporter(print_intermediate_tables=False).should_report([])


@pytest.mark.usefixtures("engine")
def test_an_experiment_calls_the_reporter_of_its_user(fit: Callable[..., ResultGrid]) -> None:
    reports: list[tuple[int, bool]] = []

    class Recording(tune.ProgressReporter):
        def should_report(self, trials: list[Trial], done: bool = False) -> bool:
            return True

        def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
            reports.append((len(trials), done))

    fit(lambda config: {"x": 1}, num_samples=2, run={"progress_reporter": Recording()})
    assert reports[-1] == (2, True)
    assert (2, False) in reports


def test_the_number_of_trials_to_come_is_shown_if_it_is_known() -> None:
    known, endless, own = tune.CLIReporter(), tune.CLIReporter(), tune.CLIReporter(total_samples=7)
    known.setup(total_samples=5)
    endless.setup(total_samples=1 << 62)
    own.setup(total_samples=5)
    assert [each.describe([]).splitlines()[1] for each in (known, endless, own)] == [
        "Number of trials: 0/5 ()",
        "Number of trials: 0 ()",
        "Number of trials: 0/7 ()",
    ]
