"""Tuning: the cost of an experiment beside its trials."""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

import meter

job = meter.Job()
ray: Any = job.load()
tune: Any = importlib.import_module(f"{job.system}.tune")


def objective(config: dict[str, Any]) -> dict[str, float]:
    """Return a loss at once."""
    return {"loss": (config["x"] - 3) ** 2}


def search(trials: int) -> Any:
    """Run an experiment of random search."""
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            objective,
            param_space={"x": tune.uniform(0, 6)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials),
            run_config=tune.RunConfig(storage_path=folder, name="bench", verbose=0),
        ).fit()
        assert len(results) == trials
        return results


def tune_50() -> float:
    """Return the seconds of an experiment with 50 trials, the first of its process."""
    return job.once(lambda: None, lambda: search(50))


def tune_1000() -> float:
    """Return the seconds of an experiment with 1,000 trials."""
    return job.once(lambda: search(10), lambda: search(1000))


job.run_on(ray, tune_50, tune_1000)
