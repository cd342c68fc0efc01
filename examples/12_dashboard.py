"""Open the dashboard of a program that does work of every kind: tasks, an actor, a dataset and an experiment.

One task waits for a resource that another one holds; "Why?" on the page explains it.

    python examples/12_dashboard.py
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from typing import Any
from urllib.request import Request, urlopen

import skate
from skate import tune


@skate.remote(num_cpus=0.5)
def load_shard(number: int) -> bytes:
    """Take a moment, and return some bytes."""
    time.sleep(random.uniform(0.05, 0.3))
    return bytes(200_000 + number)


@skate.remote(num_cpus=0.5)
def tokenize(shard: bytes) -> int:
    """Take a moment for the result of another task."""
    time.sleep(random.uniform(0.1, 0.4))
    return len(shard)


@skate.remote(resources={"licence": 1})
def render(seconds: float) -> None:
    """Hold the only licence."""
    time.sleep(seconds)


@skate.remote(num_cpus=0)
class Progress:
    """Counts tokens."""

    def __init__(self) -> None:
        self.tokens = 0

    def add(self, tokens: int) -> int:
        """Add tokens, and return all."""
        self.tokens += tokens
        return self.tokens


def slowly(row: dict[str, Any]) -> dict[str, Any]:
    """Take a moment for a row of the dataset."""
    time.sleep(0.05)
    return row


def objective(config: dict[str, float]) -> None:
    """Report a loss that falls with each epoch."""
    for epoch in range(1, 6):
        time.sleep(0.05)
        tune.report({"loss": abs(config["lr"] - 0.1) + 1 / epoch})


def read(url: str, path: str) -> Any:
    """Return what the dashboard shows on a page."""
    base, _, token = url.partition("?token=")
    return json.load(urlopen(Request(base + path, headers={"Authorization": f"Bearer {token}"})))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long to work")
    seconds = parser.parse_args().seconds
    url = skate.init(
        num_cpus=2, resources={"licence": 1}, include_dashboard=True, log_to_driver=False
    ).dashboard_url
    print(f"open {url}" if url else "this engine has no dashboard")
    end = time.monotonic() + seconds
    progress = Progress.options(name="progress").remote()
    held = [render.remote(seconds) for _ in range(2)]  # the second one waits for the licence
    tokens = 0
    folder = tempfile.TemporaryDirectory()
    while time.monotonic() < end or not tokens:
        counts = [tokenize.remote(load_shard.remote(number)) for number in range(8)]
        tokens = skate.get([progress.add.remote(count) for count in counts])[-1]
        skate.data.range(40, override_num_blocks=4).map(slowly).materialize()
        tune.Tuner(
            tune.with_resources(objective, {"cpu": 0.5}),
            param_space={"lr": tune.loguniform(1e-3, 1)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4),
            run_config=tune.RunConfig(storage_path=folder.name, verbose=0),
        ).fit()
    skate.cancel(held[1])
    if url:
        overview, runs = read(url, "state/overview"), read(url, "state/runs")["runs"]
        finished = overview["tasks"].get("FINISHED", 0)
        print(f"the page shows {finished} finished tasks and {len(runs)} runs")
    print(f"{tokens:,} tokens")


if __name__ == "__main__":
    main()
