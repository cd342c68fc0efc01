"""Trainers as trainables: their arguments, reports, checkpoints and resources."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import train, tune
from skate.train import ScalingConfig
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune.result_grid import ResultGrid

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
ENGINES = ["local"]
Fit = Callable[..., ResultGrid]


def learn(config: dict[str, Any]) -> None:
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            first = int(Path(folder, "step").read_text(encoding="utf-8"))
    for step in range(first + 1, config.get("steps", 3) + 1):
        marker = config.get("marker")
        if step == 3 and marker and not Path(marker).exists():
            Path(marker).touch()
            raise ValueError("once")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step), encoding="utf-8")
            train.report(
                {
                    "score": step * config["rate"],
                    "workers": train.get_context().get_world_size(),
                    "first": first,
                },
                checkpoint=train.Checkpoint.from_directory(folder),
            )


def trainer(workers: int = 2, **config: Any) -> DataParallelTrainer:
    return DataParallelTrainer(
        learn, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers)
    )


def test_the_config_of_a_trial_is_merged_with_that_of_the_trainer(fit: Fit) -> None:
    results = fit(
        trainer(steps=2),
        {"train_loop_config": {"rate": tune.grid_search([1, 2, 3, 4])}},
        metric="score",
        mode="max",
    )
    assert results.errors == []
    best = results.get_best_result()
    assert (best.metrics["score"], best.metrics["workers"]) == (8, 2)
    assert best.config == {"train_loop_config": {"rate": 4}}
    assert best.checkpoint is not None
    with best.checkpoint.as_directory() as folder:
        assert Path(folder, "step").read_text(encoding="utf-8") == "2"


def test_as_many_trials_run_as_have_room_for_their_workers(fit: Fit) -> None:
    running: list[int] = []

    class Counting(tune.Callback):
        def on_trial_start(self, trials: list[Any], **info: Any) -> None:
            running.append(sum(trial.status == "RUNNING" for trial in trials))

    space = {"train_loop_config": {"rate": tune.grid_search([1, 2, 3])}}
    results = fit(trainer(workers=3), space, run={"callbacks": [Counting()]})  # of four CPUs
    assert results.num_terminated == 3
    assert max(running) == 1


def test_a_failed_trial_resumes_from_its_latest_checkpoint(fit: Fit, tmp_path: Path) -> None:
    failures = tune.FailureConfig(max_failures=1)
    (result,) = fit(
        trainer(rate=1, steps=4, marker=str(tmp_path / "failed")), run={"failure_config": failures}
    )
    assert result.error is None
    assert (result.metrics["score"], result.metrics["first"]) == (4, 2)


def test_a_trial_that_stops_ends_the_workers_of_its_trainer(fit: Fit) -> None:
    (result,) = fit(trainer(rate=1, steps=1000), run={"stop": {"score": 3}})
    assert result.metrics["score"] == 3


@pytest.mark.parametrize("saving", [(), (1,), (0, 1)])
def test_every_result_is_one_of_rank_0_though_another_worker_is_faster(
    fit: Fit, tmp_path: Path, saving: tuple[int, ...]
) -> None:
    def function(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        if rank == 0:
            while not (tmp_path / "reported").exists():
                time.sleep(0.01)
        for step in range(6):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, str(rank)).touch()
                checkpoint = train.Checkpoint(folder) if rank in saving else None
                train.report({"step": step, "rank": rank}, checkpoint=checkpoint)
        (tmp_path / "reported").touch()

    (result,) = fit(DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=2)))
    assert result.error is None
    history = result.metrics_dataframe
    assert list(zip(history["step"], history["rank"], strict=True)) == [(step, 0) for step in range(6)]
    if saving:
        assert sorted(path.name for path in Path(result.checkpoint.path).iterdir()) == list(map(str, saving))


def test_an_argument_that_the_trainer_does_not_have_is_refused(fit: Fit) -> None:
    with pytest.raises(
        ValueError, match=r"may have train_loop_config, .*not 'train_loop_configs'\. Did you mean"
    ):
        fit(trainer(), {"train_loop_configs": {"rate": 1}})
