"""Start or continue an experiment in a folder, report each result, and write all of them to a file at the end.

python tuning.py CHANNEL FOLDER TRIALS
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import reporting

import skate
from skate import tune

STEPS = 3


class Reporting(tune.Callback):
    """Tells the test of each result."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        reporting.report(f"result {trial.trial_id}")


def train(config: dict[str, Any]) -> None:
    """Count to three with a checkpoint at each number, and note each start that had none to continue from."""
    count = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            count = int(Path(folder, "count").read_text(encoding="utf-8"))
    else:
        with open(f"{config['folder']}/starts", "a", encoding="utf-8") as file:
            file.write(f"{tune.get_context().get_trial_id()}\n")
    while count < STEPS:
        count += 1
        time.sleep(0.01)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "count").write_text(str(count), encoding="utf-8")
            tune.report({"value": config["x"] * count}, checkpoint=tune.Checkpoint.from_directory(folder))


def main() -> None:
    folder, trials = reporting.ARGUMENTS
    skate.init(num_cpus=2)
    path = os.path.join(folder, "experiment")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, train)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"x": tune.uniform(1, 2), "folder": folder},
            tune_config=tune.TuneConfig(num_samples=int(trials), metric="value", mode="max"),
            run_config=tune.RunConfig(
                name="experiment",
                storage_path=folder,
                failure_config=tune.FailureConfig(max_failures=-1),
                callbacks=[Reporting()],
                verbose=0,
            ),
        )
    results = [
        {"trial": result.metrics["trial_id"], "x": result.config["x"], "value": result.metrics["value"]}
        for result in tuner.fit()
    ]
    Path(folder, "results.json").write_text(json.dumps(results), encoding="utf-8")
    skate.shutdown()
    reporting.report("over")


if __name__ == "__main__":
    sys.exit(main())
