"""Tuning: the cost of an experiment beside its trials."""

from __future__ import annotations

import importlib
import tempfile
import time
from typing import Any

import meter
import psutil

job = meter.Job()
ray: Any = job.load()
tune: Any = importlib.import_module(f"{job.system}.tune")

tune.Tuner, tune.TuneConfig, tune.RunConfig, tune.uniform  # Skate imports them at their first use  # noqa: B018

WORK_S = 0.01
MANY, STEP = 10_000, 1_000  # trials
folder = tempfile.TemporaryDirectory()  # of all experiments: it is deleted after the last one is timed


def objective(config: dict[str, Any]) -> dict[str, float]:
    """Return a loss at once."""
    return {"loss": (config["x"] - 3) ** 2}


def work(config: dict[str, Any]) -> dict[str, float]:
    """Return a loss after ten milliseconds of work."""
    end = time.perf_counter() + WORK_S
    while time.perf_counter() < end:
        pass
    return objective(config)


class MemoryCurve(tune.Callback):  # type: ignore[misc]  # the system under test is imported by its name
    """Measures the memory of all processes, shared memory apart, after every thousandth trial."""

    def __init__(self) -> None:
        self.megabytes: list[float] = []
        self._ended = 0

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        """Count the trial, and measure."""
        self._ended += 1
        if self._ended % STEP == 0:
            processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
            self.megabytes.append(sum(each.memory_full_info().uss for each in processes) / 1e6)


def search(
    trials: int, trainable: Any = objective, search_alg: Any = None, callbacks: list[Any] | None = None
) -> Any:
    """Run an experiment, of random search by default."""
    results = tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 6)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, search_alg=search_alg),
        run_config=tune.RunConfig(storage_path=folder.name, verbose=0, callbacks=callbacks),
    ).fit()
    assert len(results) == trials
    return results


def tune_50() -> float:
    """Return the seconds of an experiment with 50 trials of Optuna's default search, the first of its process.

    Importing Optuna is not part of them, as it is not in the program of Optuna alone.
    """
    importlib.import_module("optuna")
    optuna: Any = importlib.import_module(f"{job.system}.tune.search.optuna")
    return job.once(lambda: None, lambda: search(50, search_alg=optuna.OptunaSearch()))


def tune_1000() -> float:
    """Return the seconds of an experiment with 1,000 trials."""
    return job.once(lambda: search(10), lambda: search(1000))


def tune_idle() -> float:
    """Return the share of the time, in percent, that the workers of short trials are idle once all of them run."""
    few = job.once(lambda: search(4 * job.cpus, work), lambda: search(50 * job.cpus, work))
    many = job.once(lambda: None, lambda: search(200 * job.cpus, work))
    return 100 * (1 - 150 * WORK_S / (many - few))


def tune_memory() -> float:
    """Return the growth of the memory of all processes from the 1,000th to the 10,000th trial, in MB."""
    curve = MemoryCurve()
    search(MANY, callbacks=[curve])
    print("MB after each thousand trials:", *(round(each, 1) for each in curve.megabytes))
    return curve.megabytes[-1] - curve.megabytes[0]


job.run_on(ray, tune_50, tune_1000, tune_idle, tune_memory)
