"""TensorFlow: `MultiWorkerMirroredStrategy` averages the gradients of the workers.

`TensorflowTrainer` tells TensorFlow where the workers are. Data streams in from a dataset; the callback of Keras
reports each epoch, and keeps the model. Keras 3 cannot fit a model on several workers, and so this is Keras 2, which is
the package `tf_keras`.

    python examples/train/tensorflow_trainer.py            # two processes on the CPU
    python examples/train/tensorflow_trainer.py --gpu      # two GPUs
"""

import argparse
import os
import tempfile

# Before the session starts, so that the process from which workers are forked has it too.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import skate
from skate import train
from skate.train import RunConfig, ScalingConfig
from skate.train.tensorflow import TensorflowTrainer, prepare_dataset_shard


def learn(config):
    # Here and not above: the driver needs none of it, and importing it takes seconds.
    import tensorflow as tf

    from skate.train.tensorflow.keras import ReportCheckpointCallback

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)]
        )
        model.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss="mse")
    rows = train.get_dataset_shard("train").to_tf("x", "y", batch_size=32)
    model.fit(
        prepare_dataset_shard(rows),
        epochs=config["epochs"],
        verbose=0,
        callbacks=[ReportCheckpointCallback()],
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--gpu", action="store_true", help="one GPU for each worker")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args()

    numbers = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    rows = [{"x": x, "y": y} for x, y in zip(numbers, np.abs(numbers).sum(axis=1), strict=True)]
    result = TensorflowTrainer(
        learn,
        train_loop_config={"epochs": options.epochs},
        datasets={"train": skate.data.from_items(rows)},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(
            name="tensorflow",
            storage_path=tempfile.mkdtemp(),
            worker_runtime_env={"env_vars": {"TF_USE_LEGACY_KERAS": "1"}},
        ),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"loss: {losses.iloc[0]:.2f} after the first epoch, {losses.iloc[-1]:.2f} after {options.epochs}")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
