"""A trainable that learns nothing, for tests of schedulers, searchers and callbacks."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from skate.tune.registry import register_trainable
from skate.tune.trainable.trainable import Trainable

__all__ = ["MOCK_ERROR_KEY", "MOCK_TRAINABLE_NAME", "MyTrainableClass", "register_mock_trainable"]

MOCK_TRAINABLE_NAME = "mock_trainable"
MOCK_ERROR_KEY = "mock_error"
_STATE = "checkpoint"  # the file with the number of steps


class MyTrainableClass(Trainable):
    """Reports a reward that grows with each step, up to a limit.

    The configuration may have `height`, the limit; `width`, the number of steps in which the reward approaches it;
    `sleep`, the duration of a step in seconds; `mock_error`, whether the second step fails; and `persistent_error`,
    whether it fails again after a restore.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Begin without steps."""
        self.timestep = 0
        self.restored = False

    def step(self) -> dict[str, Any]:
        """Return the reward of the next step."""
        get = self.config.get
        may_fail = get("persistent_error", False) or not self.restored
        if get(MOCK_ERROR_KEY, False) and self.timestep and may_fail:
            raise RuntimeError(f"step {self.timestep + 1} fails, as the configuration requests")
        time.sleep(get("sleep", 0))
        self.timestep += 1
        return {"episode_reward_mean": get("height", 1) * math.tanh(self.timestep / get("width", 1))}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the number of steps."""
        Path(checkpoint_dir, _STATE).write_text(json.dumps({"timestep": self.timestep}), encoding="utf-8")

    def load_checkpoint(self, checkpoint: str) -> None:
        """Load the number of steps."""
        self.timestep = json.loads(Path(checkpoint, _STATE).read_text(encoding="utf-8"))["timestep"]
        self.restored = True


def register_mock_trainable() -> None:
    """Register the class under the name `mock_trainable`."""
    register_trainable(MOCK_TRAINABLE_NAME, MyTrainableClass)
