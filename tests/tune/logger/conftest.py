"""Trainables for the tests of loggers, which run with the inline engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune

Learn = Callable[[dict[str, Any]], None]


def learn(config: dict[str, Any]) -> None:
    """Report three times, with checkpoints; fail before the third report if a file `fails` exists."""
    checkpoint = tune.get_checkpoint()
    first = 1
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first += int(Path(folder, "step").read_text(encoding="utf-8"))
    for step in range(first, 4):
        if step == 3 and Path(config.get("fails", "/nowhere")).exists():
            raise ValueError("bad weights")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step), encoding="utf-8")
            metrics = {"loss": config["lr"] / step, "eval": {"hits": step}, "note": "text"}
            tune.report(metrics, checkpoint=tune.Checkpoint(folder))


@pytest.fixture(name="learn")
def learn_fixture() -> Learn:
    return learn
