"""Callbacks of training libraries that report to Tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from skate import train, tune
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune.integration.ray_train import CHECKPOINT_PATH_KEY, TuneReportCallback


def run_config(folder: Path, **options: Any) -> tune.RunConfig:
    return tune.RunConfig(storage_path=str(folder), verbose=0, **options)


def test_lightning_reports_the_metrics_that_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    import torch

    from skate.tune.integration.pytorch_lightning import TuneReportCallback, TuneReportCheckpointCallback

    reports: list[tuple[dict[str, float], bool]] = []

    class Trainer:
        sanity_checking = True
        callback_metrics: ClassVar = {"loss": torch.tensor(2.0), "accuracy": torch.tensor(0.5)}

        def save_checkpoint(self, path: str) -> None:
            Path(path).write_text("state", encoding="utf-8")

    def record(metrics: dict[str, float], *, checkpoint: tune.Checkpoint | None = None) -> None:
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                assert Path(folder, "trainer.ckpt").read_text(encoding="utf-8") == "state"
        reports.append((metrics, checkpoint is not None))

    trainer = Trainer()
    callback = TuneReportCheckpointCallback({"x": "loss"}, "trainer.ckpt", on=["validation_end", "fit_end"])
    plain = TuneReportCheckpointCallback(save_checkpoints=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skate.tune.integration.pytorch_lightning.report", record)
        callback.on_validation_end(trainer, None)  # of the check before the training
        trainer.sanity_checking = False
        callback.on_validation_end(trainer, None)
        callback.on_train_epoch_end(trainer, None)
        callback.on_fit_end(trainer, None)
        plain.on_validation_end(trainer, None)
        TuneReportCheckpointCallback("missing").on_validation_end(trainer, None)
    assert reports == [({"x": 2.0}, True), ({"x": 2.0}, True), ({"loss": 2.0, "accuracy": 0.5}, False)]
    with pytest.raises(ValueError, match="Did you mean 'validation_end'"):
        TuneReportCheckpointCallback(on="validaton_end")
    with pytest.warns(DeprecationWarning, match="save_checkpoints=False"):
        TuneReportCallback("loss")


@pytest.mark.usefixtures("engine")
class TestTrials:
    @pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
    def test_boosting_reports_each_round_and_the_last_model(self, tmp_path: Path, library: str) -> None:
        pytest.importorskip(library)

        def with_xgboost(config: dict[str, Any]) -> None:
            import numpy as np
            import xgboost

            from skate.tune.integration.xgboost import TuneReportCheckpointCallback

            rows = xgboost.DMatrix(np.arange(20.0).reshape(-1, 1), label=np.arange(20) % 2)
            xgboost.train(
                {"objective": "binary:logistic", "nthread": 1},
                rows,
                num_boost_round=3,
                evals=[(rows, "train")],
                verbose_eval=False,
                callbacks=[TuneReportCheckpointCallback({"loss": "train-logloss"})],
            )

        def with_lightgbm(config: dict[str, Any]) -> None:
            import lightgbm
            import numpy as np

            from skate.tune.integration.lightgbm import TuneReportCheckpointCallback

            rows = lightgbm.Dataset(np.arange(20.0).reshape(-1, 1), label=np.arange(20) % 2)
            lightgbm.train(
                {"objective": "binary", "num_threads": 1, "verbose": -1},
                rows,
                num_boost_round=3,
                valid_sets=[rows],
                valid_names=["train"],
                callbacks=[TuneReportCheckpointCallback({"loss": "train-binary_logloss"})],
            )

        function = with_xgboost if library == "xgboost" else with_lightgbm
        (result,) = tune.Tuner(function, run_config=run_config(tmp_path)).fit()
        assert result.error is None, result.error
        assert result.metrics_dataframe["loss"].notna().all()
        assert result.metrics["training_iteration"] >= 3
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            assert Path(folder, "model.ubj" if library == "xgboost" else "model.txt").exists()

    def test_a_trainer_in_a_function_reports_to_its_trial(self, tmp_path: Path) -> None:
        def learn(config: dict[str, Any]) -> None:
            folder = tmp_path / "state"
            folder.mkdir(exist_ok=True)
            train.report({"x": 1})
            train.report({"x": 2}, checkpoint=train.Checkpoint(str(folder)))

        def function(config: dict[str, Any]) -> None:
            DataParallelTrainer(
                learn,
                scaling_config=train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
                run_config=train.RunConfig(
                    storage_path=str(tmp_path), name="inner", callbacks=[TuneReportCallback()]
                ),
            ).fit()

        (result,) = tune.Tuner(function, run_config=run_config(tmp_path, name="outer")).fit()
        assert result.error is None, result.error
        assert list(result.metrics_dataframe["x"]) == [1, 2]
        assert result.metrics[CHECKPOINT_PATH_KEY].startswith(str(tmp_path / "inner"))

    def test_a_callback_needs_a_trial(self) -> None:
        with pytest.raises(RuntimeError, match="must be called in a trainable function"):
            TuneReportCallback()
