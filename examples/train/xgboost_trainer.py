"""XGBoost: workers have each a part of the rows, and grow one model together.

`XGBoostTrainer` connects the workers, so that `xgboost.train` in the function is a distributed one. The callback
reports each round, and keeps the model.

    python examples/train/xgboost_trainer.py            # two processes on the CPU
    python examples/train/xgboost_trainer.py --gpu      # two GPUs
"""

import argparse
import tempfile

import pandas as pd
import xgboost
from sklearn.datasets import load_breast_cancer

import skate
from skate import train
from skate.train import RunConfig, ScalingConfig
from skate.train.xgboost import RayTrainReportCallback, XGBoostTrainer


def learn(config):
    def matrix(name):
        frame = train.get_dataset_shard(name).materialize().to_pandas()
        return xgboost.DMatrix(frame.drop(columns="target"), label=frame["target"])

    rows, held_out = matrix("train"), matrix("valid")
    xgboost.train(
        {
            "objective": "binary:logistic",
            "eval_metric": ["logloss", "error"],
            "device": "cuda" if config["gpu"] else "cpu",
        },
        rows,
        num_boost_round=config["rounds"],
        evals=[(rows, "train"), (held_out, "valid")],
        verbose_eval=False,
        callbacks=[RayTrainReportCallback(frequency=10)],
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--gpu", action="store_true", help="one GPU for each worker")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--rounds", type=int, default=20)
    options = options.parse_args()

    numbers, label = load_breast_cancer(return_X_y=True)
    table = pd.DataFrame(numbers, columns=[f"x{index}" for index in range(numbers.shape[1])])
    training, held_out = skate.data.from_pandas(table.assign(target=label)).train_test_split(
        0.25, shuffle=True, seed=0
    )
    result = XGBoostTrainer(
        learn,
        train_loop_config={"rounds": options.rounds, "gpu": options.gpu},
        datasets={"train": training, "valid": held_out},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="xgboost", storage_path=tempfile.mkdtemp()),
    ).fit()
    booster = RayTrainReportCallback.get_model(result.checkpoint)
    print(f"{booster.num_boosted_rounds()} rounds, {len(result.best_checkpoints)} checkpoints")
    print(f"wrong of those held out: {result.metrics['valid-error']:.1%}")


if __name__ == "__main__":
    main()
