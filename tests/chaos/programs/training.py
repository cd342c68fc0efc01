"""Train two workers of a process group in a folder, and report each step.

python training.py CHANNEL FOLDER
"""

from __future__ import annotations

import sys
from typing import Any

import reporting
from tests.train import strikes

import skate
from skate.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from skate.train.torch import TorchTrainer

STEPS = 40


class Reporting(UserCallback):
    """Tells the test of each step."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        reporting.report(f"step {metrics[0]['step']}")


def main() -> None:
    (folder,) = reporting.ARGUMENTS
    skate.init(num_cpus=2)
    TorchTrainer(
        strikes.learn,
        train_loop_config={"steps": STEPS, "strikes": {}, "scars": folder},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="run",
            storage_path=folder,
            failure_config=FailureConfig(max_failures=0),
            callbacks=[Reporting()],
        ),
    ).fit()
    skate.shutdown()
    reporting.report("over")


if __name__ == "__main__":
    sys.exit(main())
