"""LightGBM: workers have each a part of the rows, and grow one model together.

`LightGBMTrainer` lets the workers find each other; `get_network_params()` tells LightGBM how. The callback reports each
round, and keeps the model.

    python examples/train/lightgbm_trainer.py
"""

import argparse
import tempfile

import lightgbm
import pandas as pd
from sklearn.datasets import load_breast_cancer

import skate
from skate import train
from skate.train import DataConfig, RunConfig, ScalingConfig
from skate.train.lightgbm import (
    LightGBMTrainer,
    RayTrainReportCallback,
    get_network_params,
    normalize_pandas_for_lightgbm,
)


def learn(config):
    def rows(name):
        frame = normalize_pandas_for_lightgbm(train.get_dataset_shard(name).materialize().to_pandas())
        return lightgbm.Dataset(frame.drop(columns="target"), label=frame["target"])

    lightgbm.train(
        {
            "objective": "binary",
            "metric": ["binary_logloss", "binary_error"],
            "tree_learner": "data",  # each worker has its own rows
            "pre_partition": True,
            "verbose": -1,
            **get_network_params(),
        },
        rows("train"),
        num_boost_round=config["rounds"],
        valid_sets=[rows("valid")],
        valid_names=["valid"],
        callbacks=[RayTrainReportCallback(frequency=10)],
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--rounds", type=int, default=20)
    options = options.parse_args()

    numbers, label = load_breast_cancer(return_X_y=True)
    table = pd.DataFrame(numbers, columns=[f"x{index}" for index in range(numbers.shape[1])])
    training, held_out = skate.data.from_pandas(table.assign(target=label)).train_test_split(
        0.25, shuffle=True, seed=0
    )
    result = LightGBMTrainer(
        learn,
        train_loop_config={"rounds": options.rounds},
        datasets={"train": training, "valid": held_out},
        # LightGBM evaluates on what a worker has: let each have all that is held out.
        dataset_config=DataConfig(datasets_to_split=["train"]),
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(name="lightgbm", storage_path=tempfile.mkdtemp()),
    ).fit()
    booster = RayTrainReportCallback.get_model(result.checkpoint)
    print(f"{booster.current_iteration()} rounds, {len(result.best_checkpoints)} checkpoints")
    print(f"wrong of those held out: {result.metrics['valid-binary_error']:.1%}")


if __name__ == "__main__":
    main()
