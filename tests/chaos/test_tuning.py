"""An experiment whose program and workers are killed at random moments: no finished result is lost or made again."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from skate.tune._experiment.journal import read
from tests.chaos import attacks
from tests.chaos.arena import Arena

TRIALS = 300
KILLS = 100


def ended_trials(folder: Path) -> dict[str, Any]:
    """Return the trials that have ended according to the journal, with their results."""
    journal = folder / "experiment" / "journal.jsonl"
    if not journal.exists():
        return {}
    return {row["trial"]: row["result"] for row in read(journal) if row["event"] == "ended"}


def starts(folder: Path) -> Counter[str]:
    """Return how often each trial has started without a checkpoint."""
    file = folder / "starts"
    return Counter(file.read_text(encoding="utf-8").split()) if file.exists() else Counter()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_kills_lose_no_finished_result(seed: int, arena: Arena, tmp_path: Path) -> None:
    rng = random.Random(seed)
    finished: dict[str, Any] = {}
    begun: dict[str, int] = {}
    killed = 0
    while killed < KILLS:
        driver = arena.start("tuning.py", tmp_path, TRIALS)
        driver.read_steps(rng.randrange(1, 12))
        workers = driver.tree()["worker"]
        if rng.random() < 0.5 and workers:  # first a worker, whose trial continues from its checkpoint
            driver.kill([rng.choice(workers)])
            killed += 1
            driver.read_steps(rng.randrange(1, 5))
        attacks.kill(driver.pid)
        killed += 1
        driver.wait()
        driver.wait_all_gone()
        now = ended_trials(tmp_path)
        assert {name: now.get(name) for name in finished} == finished
        finished = now
        assert {name: starts(tmp_path)[name] for name in begun} == begun, "a finished trial has run again"
        begun = {name: starts(tmp_path)[name] for name in finished}
    driver = arena.start("tuning.py", tmp_path, TRIALS)
    driver.wait_for("over", timeout_s=120)
    assert driver.wait() == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert len({result["trial"] for result in results}) == len(results) == TRIALS
    assert all(result["value"] == 3 * result["x"] for result in results)
    assert {name: result for name, result in ended_trials(tmp_path).items() if name in finished} == finished
    assert not arena.leftovers()
