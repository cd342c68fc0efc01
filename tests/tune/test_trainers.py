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


def names(result: Any) -> list[str]:
    """Return the paths of the kept checkpoints, relative to the folder of their trial."""
    paths = [Path(checkpoint.path) for checkpoint, _ in result.best_checkpoints]
    assert all(path.is_dir() for path in paths)
    return [str(path.relative_to(result.path)) for path in paths]


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


def test_nested_dictionaries_of_a_trial_are_merged_with_those_of_the_trainer(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        train.report({"seen": str(config["optimizer"])})

    given = {"optimizer": {"name": "adam", "rates": {"first": 1, "last": 2}}}
    (result,) = fit(
        DataParallelTrainer(function, train_loop_config=given, scaling_config=ScalingConfig(num_workers=1)),
        {"train_loop_config": {"optimizer": {"rates": {"last": 3}, "momentum": 0}}},
    )
    assert result.metrics["seen"] == "{'name': 'adam', 'rates': {'first': 1, 'last': 3}, 'momentum': 0}"
    assert given == {"optimizer": {"name": "adam", "rates": {"first": 1, "last": 2}}}


def test_the_experiment_of_a_trainer_has_its_name_its_storage_and_its_number_of_checkpoints(
    tmp_path: Path,
) -> None:
    config = train.RunConfig(
        name="named",
        storage_path=str(tmp_path),
        checkpoint_config=train.CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="min"
        ),
        failure_config=train.FailureConfig(max_failures=1),
    )
    of_trainer = DataParallelTrainer(
        learn,
        train_loop_config={"rate": 1, "steps": 4, "marker": str(tmp_path / "failed")},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=config,
    )
    (result,) = tune.Tuner(of_trainer).fit()
    assert result.error is None
    assert result.metrics["first"] == 2, "the run of the trial restarts by itself"
    assert Path(result.path).parent == tmp_path / "named"
    assert [metrics["score"] for _, metrics in result.best_checkpoints] == [4, 2, 1], (
        "the best and the latest"
    )
    assert tune.Tuner.can_restore(tmp_path / "named")
    assert config.name == "named"


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
    assert names(result) == [f"checkpoint_00000{number}" for number in range(4)]


def test_a_checkpoint_that_was_incomplete_when_its_trial_failed_is_stored_anew(fit: Fit) -> None:
    def function() -> None:
        parts = Path(train.get_context().get_trial_dir(), "checkpoint_000001")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "whole").touch()
            for step in range(2 if train.get_checkpoint() is None else 1):
                if step == 1:
                    parts.mkdir()
                    Path(parts, "part").touch()
                    raise ValueError("once")
                train.report({"step": step}, checkpoint=train.Checkpoint(folder))

    (result,) = fit(DataParallelTrainer(function), run={"failure_config": tune.FailureConfig(max_failures=1)})
    assert result.error is None
    assert names(result) == ["checkpoint_000000", "checkpoint_000001"]
    assert [path.name for path in Path(result.checkpoint.path).iterdir()] == ["whole"]


def test_a_training_function_may_name_its_checkpoints(fit: Fit) -> None:
    def function() -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("first", None, "last"):
                train.report({"score": 1}, checkpoint=train.Checkpoint(folder), checkpoint_dir_name=name)

    (result,) = fit(DataParallelTrainer(function))
    assert result.error is None
    assert names(result) == ["first", "checkpoint_000001", "last"]


def test_the_run_of_a_trainer_finds_its_checkpoints_in_the_folder_of_the_trial(fit: Fit) -> None:
    (trial,) = fit(trainer(rate=1, steps=2))
    (folder,) = Path(trial.path).glob("run_*")
    run = train.Result.from_path(folder)
    assert run.checkpoint == trial.checkpoint
    assert names(trial) == ["checkpoint_000000", "checkpoint_000001"]


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


def test_a_scaling_config_may_have_search_values(fit: Fit) -> None:
    def function() -> None:
        context = train.get_context()
        train.report({"workers": context.get_world_size(), "cpus": context.get_trial_resources().get("CPU")})

    space = {
        "scaling_config": ScalingConfig(
            num_workers=tune.grid_search([1, 2]),  # type: ignore[arg-type]
            resources_per_worker={"CPU": tune.choice([1.0])},
        )
    }
    results = fit(DataParallelTrainer(function), space)
    assert results.errors == []
    assert [result.metrics["workers"] for result in results] == [1, 2]
    assert [result.metrics["cpus"] for result in results] == [1.0, 1.0]
    assert [result.config["scaling_config"] for result in results] == [
        ScalingConfig(num_workers=number, resources_per_worker={"CPU": 1.0}) for number in (1, 2)
    ]


def test_a_sampled_scaling_config_is_checked() -> None:
    with pytest.raises(ValueError, match="num_workers"):
        ScalingConfig(num_workers=-1)
    assert ScalingConfig(use_gpu=tune.choice([True, False])).num_workers == 1  # type: ignore[arg-type]


def test_functions_of_tune_work_in_the_workers_of_a_trainer(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        context, trained = tune.get_context(), train.get_context()
        facts = (context.get_trial_id(), context.get_trial_name(), context.get_trial_dir())
        assert facts == (trained.get_trial_id(), trained.get_trial_name(), trained.get_trial_dir())
        with tempfile.TemporaryDirectory() as folder:
            tune.report(
                {
                    "facts": facts,
                    "experiment": context.get_experiment_name(),
                    "folder": context.get_storage().experiment_fs_path,
                    "ranks": (context.get_world_size(), context.get_world_rank()),
                    "resources": context.get_trial_resources().required_resources,  # type: ignore[union-attr]
                    "is_new": checkpoint is None,
                },
                checkpoint=tune.Checkpoint.from_directory(folder),
            )

    results = fit(
        DataParallelTrainer(function, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2)),
        {"train_loop_config": {"x": tune.grid_search([1, 2])}},
    )
    assert results.errors == []
    ids = {result.metrics["facts"][0] for result in results}
    assert len(ids) == 2, "each trial has an id of its own"
    for result in results:
        trial_id, name, folder = result.metrics["facts"]
        assert trial_id in name
        assert folder == result.path
        assert result.metrics["experiment"] == "experiment"
        assert result.metrics["folder"] == str(Path(result.path).parent)
        assert tuple(result.metrics["ranks"]) == (2, 0)
        assert result.metrics["resources"] == {"CPU": 2.0}
        assert result.checkpoint is not None


def test_functions_of_tune_work_in_a_trainer_without_a_tuner(tmp_path: Path) -> None:
    def function() -> None:
        context = tune.get_context()
        tune.report({"id": context.get_trial_id(), "folder": context.get_trial_dir()})

    run = train.RunConfig(name="alone", storage_path=str(tmp_path))
    result = DataParallelTrainer(function, run_config=run).fit()
    assert result.metrics is not None
    assert (result.metrics["id"], result.metrics["folder"]) == ("alone", str(tmp_path / "alone"))
