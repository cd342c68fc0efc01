"""Training with TensorFlow: workers are a cluster, and average their gradients."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("tf_keras") is None:
    pytest.skip("needs tensorflow and tf_keras", allow_module_level=True)

import skate
from skate import train
from skate.train import Checkpoint, Result, RunConfig, ScalingConfig
from skate.train.collective import broadcast_from_rank_zero
from skate.train.tensorflow import TensorflowCheckpoint, TensorflowTrainer, prepare_dataset_shard

# TensorFlow is imported by workers alone: in this process it would stay, and take seconds from every run of tests.
pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine", "polars_is_running")]

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
LEGACY = {"TF_USE_LEGACY_KERAS": "1", **QUIET}


@pytest.fixture
def fit(run_config: Callable[..., RunConfig]) -> Callable[..., Result]:
    def go(function: Any, workers: int = 2, *, variables: dict[str, str] = LEGACY, **options: Any) -> Result:
        return TensorflowTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=run_config(worker_runtime_env={"env_vars": variables}),
            **options,
        ).fit()

    return go


def line() -> skate.data.Dataset:
    """Return points on a plane, the same number for each of two workers."""
    numbers = np.random.default_rng(0).normal(size=(128, 3)).astype("float32")
    heights = numbers @ np.array([1.0, 2.0, 3.0], dtype="float32")
    return skate.data.from_items([{"x": x, "y": y} for x, y in zip(numbers, heights, strict=True)])


def compiled(tf: Any) -> Any:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.1),
        loss=tf.keras.losses.MeanSquaredError(),
        metrics=[tf.keras.metrics.MeanAbsoluteError("mae")],
    )
    return model


def learn() -> dict[str, Any]:
    """Fit a model on this worker's points; return its weights and its place."""
    import tensorflow as tf

    from skate.train.tensorflow.keras import ReportCheckpointCallback

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = compiled(tf)
    shard = train.get_dataset_shard("train").to_tf("x", "y", batch_size=16)
    model.fit(prepare_dataset_shard(shard), epochs=3, verbose=0, callbacks=[ReportCheckpointCallback()])
    return {
        "weights": model.get_weights()[0].ravel().tolist(),
        "replicas": strategy.num_replicas_in_sync,
        "place": json.loads(os.environ["TF_CONFIG"]),
    }


def test_workers_fit_one_model_which_a_checkpoint_holds(fit: Callable[..., Result]) -> None:
    def function() -> dict[str, Any]:
        found = learn()
        first = broadcast_from_rank_zero(found["weights"])
        assert found["weights"] == first  # of other points, and yet the same
        if train.get_context().get_world_rank() == 0:
            kept = TensorflowCheckpoint(train.get_checkpoint().path)
            found["kept"] = kept.get_model().get_weights()[0].ravel().tolist()
        return found

    result = fit(function, datasets={"train": line()})
    found = result.return_value
    assert found["replicas"] == 2
    assert found["kept"] == found["weights"]
    addresses = found["place"]["cluster"]["worker"]
    assert len(set(addresses)) == 2
    assert found["place"]["task"] == {"type": "worker", "index": 0}
    losses = list(result.metrics_dataframe["loss"])
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 4
    assert set(result.metrics) == {"loss", "mae"}
    assert len(result.best_checkpoints) == 3


def test_where_keras_3_cannot_the_error_says_what_can(fit: Callable[..., Result]) -> None:
    with pytest.raises(train.WorkerGroupError, match="set TF_USE_LEGACY_KERAS=1"):
        fit(learn, variables=QUIET, datasets={"train": line()})


def test_one_worker_keeps_models_of_keras_at_the_events_that_are_asked_for(
    fit: Callable[..., Result], tmp_path: Path
) -> None:
    def function() -> list[float]:
        import tensorflow as tf

        from skate.train.tensorflow.keras import ReportCheckpointCallback

        with pytest.raises(ValueError, match="unknown event 'noon': the events are epoch_begin, epoch_end"):
            ReportCheckpointCallback(checkpoint_on="noon")
        model = compiled(tf)
        x = np.ones((8, 3), dtype="float32")
        callback = ReportCheckpointCallback("train_end", ["epoch_end", "train_batch_end"], {"error": "mae"})
        model.fit(x, x.sum(axis=1), epochs=2, verbose=0, callbacks=[callback])

        # The other ways to make a checkpoint of a model.
        weights: list[float] = model.get_weights()[0].ravel().tolist()
        model.save(str(tmp_path / "model.h5"))
        for checkpoint in (
            TensorflowCheckpoint.from_h5(str(tmp_path / "model.h5")),
            TensorflowCheckpoint.from_model(model),
        ):
            assert checkpoint.get_model().get_weights()[0].ravel().tolist() == weights
        return weights

    result = fit(function, workers=1, variables=QUIET)
    assert (
        len(result.metrics_dataframe["error"].dropna()) == 4
    )  # in each of two epochs its one batch, and its end
    assert len(result.best_checkpoints) == 1
    assert Path(result.checkpoint.path, "model.keras").is_file()


def test_a_checkpoint_that_is_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the model.s file in .* is unknown"):
        TensorflowCheckpoint(Checkpoint.from_directory(tmp_path).path).get_model()
    with pytest.raises(ValueError, match="does not exist"):
        TensorflowCheckpoint.from_h5(str(tmp_path / "none.h5"))
    with pytest.raises(ValueError, match="does not exist"):
        TensorflowCheckpoint.from_saved_model(str(tmp_path / "none"))


def test_the_example_learns(run_example: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # which the example sets, for good
    printed = run_example("tensorflow_trainer.py")
    found = re.search(r"^loss: (\S+) after the first epoch, (\S+) after 3$", printed, flags=re.MULTILINE)
    assert found is not None
    assert float(found[2]) < float(found[1]) / 2
