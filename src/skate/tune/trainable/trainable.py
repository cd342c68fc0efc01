"""Trainables as classes: set up once, then trained in steps, with checkpoints in between."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.result import (
    DONE,
    HOSTNAME,
    NODE_IP,
    PID,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTAMP,
    TRAINING_ITERATION,
)
from skate.util import get_node_ip_address

if TYPE_CHECKING:
    from skate.train import Checkpoint

__all__ = ["Trainable"]

_STATE_FILE = "checkpoint_dict.pkl"  # of save_checkpoint() that returns a dictionary


class Trainable:
    """The base class of trainables.

    A subclass defines `setup`, `step`, and `save_checkpoint` and `load_checkpoint` if its trials can be paused or
    restored. `Tuner` runs each trial in a separate process.

    Args:
        config: The configuration of the trial; `setup` receives it.

    Example:
        >>> class Doubling(Trainable):
        ...     def setup(self, config):
        ...         self.value = config["start"]
        ...     def step(self):
        ...         self.value *= 2
        ...         return {"value": self.value}
        >>> Doubling({"start": 3}).train()["value"]
        6
    """

    # Attributes of the trial, which `setup` may read. The worker sets them before it calls `__init__`.
    _trial_id = "default"
    _trial_name = "default"
    _trial_resources: PlacementGroupFactory | None = None
    _logdir: str | None = None

    def __init__(
        self, config: dict[str, Any] | None = None, logger_creator: Any = None, storage: Any = None
    ) -> None:
        self.config = config or {}
        self._iteration = 0
        self._iterations_since_restore = 0
        self._time_total = 0.0
        self._time_since_restore = 0.0
        self.setup(self.config)

    # ------------------------------------------------------------ for subclasses

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare for training; called once, when the trial starts."""

    def step(self) -> dict[str, Any]:
        """Train for one step; return its metrics."""
        raise NotImplementedError(
            f"{type(self).__name__} must define step(), which returns a dictionary of metrics."
        )

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Save the state in a folder, or return it as a dictionary."""
        raise NotImplementedError(
            f"{type(self).__name__} must define save_checkpoint(checkpoint_dir) to be checkpointed or paused."
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the state from the folder, or the dictionary, that `save_checkpoint` made."""
        raise NotImplementedError(
            f"{type(self).__name__} must define load_checkpoint(checkpoint) to continue from a checkpoint."
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Adopt another configuration in place; return whether the trainable supports this."""
        return False

    def log_result(self, result: dict[str, Any]) -> None:
        """Observe each result. Subclasses with their own loggers override it."""

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Write the model to a folder in these formats; return the paths by format."""
        return {}

    def cleanup(self) -> None:
        """Release resources; called when the trial ends."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """Return the resources of a trial with this configuration; None for one CPU."""
        return None

    # ------------------------------------------------------------ for callers

    def train(self) -> dict[str, Any]:
        """Run one step; return its metrics together with those that Tune adds."""
        begun = time.monotonic()
        result = self.step()
        if not isinstance(result, Mapping):
            raise ValueError(
                f"step() of {type(self).__name__} returned {result!r}: it must return a dictionary."
            )
        seconds = time.monotonic() - begun
        self._iteration += 1
        self._iterations_since_restore += 1
        self._time_total += seconds
        self._time_since_restore += seconds
        filled = {**self.get_auto_filled_metrics(seconds), **result}
        filled[DONE] = bool(result.get(DONE, False))
        self.log_result(filled)
        return filled

    def get_auto_filled_metrics(self, time_this_iter: float = 0.0) -> dict[str, Any]:
        """Return the metrics that Tune adds to each result."""
        now = time.time()
        return {
            TRAINING_ITERATION: self._iteration,
            "trial_id": self._trial_id,
            TIMESTAMP: int(now),
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            TIME_THIS_ITER_S: time_this_iter,
            TIME_TOTAL_S: self._time_total,
            PID: os.getpid(),
            HOSTNAME: platform.node(),
            NODE_IP: get_node_ip_address(),
            "config": self.config,
            "time_since_restore": self._time_since_restore,
            "iterations_since_restore": self._iterations_since_restore,
        }

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Save a checkpoint in a folder, a temporary one by default."""
        from skate.train import Checkpoint

        folder = checkpoint_dir or tempfile.mkdtemp(prefix="skate_trainable_")
        os.makedirs(folder, exist_ok=True)
        state = self.save_checkpoint(folder)
        if isinstance(state, dict):
            import cloudpickle

            with open(os.path.join(folder, _STATE_FILE), "wb") as file:
                cloudpickle.dump(state, file)
        elif state is not None and os.path.realpath(state) != os.path.realpath(folder):
            raise ValueError(
                f"save_checkpoint() of {type(self).__name__} returned {state!r}: it must return a dictionary, the "
                "folder it was given, or None."
            )
        checkpoint = Checkpoint.from_directory(folder)
        checkpoint.update_metadata({"iteration": self._iteration, "time_total_s": self._time_total})
        return checkpoint

    def restore(self, checkpoint: Checkpoint | str) -> None:
        """Continue from a checkpoint of `save`."""
        from skate.train import Checkpoint

        source = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        metadata = source.get_metadata()
        with source.as_directory() as folder:
            state_file = os.path.join(folder, _STATE_FILE)
            if os.path.exists(state_file):
                import pickle

                with open(state_file, "rb") as file:
                    self.load_checkpoint(pickle.load(file))
            else:
                # A copy, because load_checkpoint() may change it.
                copy = tempfile.mkdtemp(prefix="skate_trainable_")
                try:
                    shutil.copytree(folder, copy, dirs_exist_ok=True)
                    self.load_checkpoint(copy)
                finally:
                    shutil.rmtree(copy, ignore_errors=True)
        self._iteration = metadata.get("iteration", 0)
        self._time_total = metadata.get("time_total_s", 0.0)
        self._iterations_since_restore = 0
        self._time_since_restore = 0.0

    def export_model(self, export_formats: list[str] | str, export_dir: str | None = None) -> dict[str, str]:
        """Export the model with `_export_model`, which subclasses define.

        Args:
            export_formats: The formats; `ExportFormat` has names for some.
            export_dir: The folder to write to; that of the trial by default.

        Returns:
            The paths of the exported models by format.
        """
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self._logdir or os.getcwd())

    def reset(self, new_config: dict[str, Any]) -> bool:
        """Adopt another configuration for another trial, from the beginning; return whether that worked."""
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._iteration = self._iterations_since_restore = 0
        self._time_total = self._time_since_restore = 0.0
        return True

    def stop(self) -> None:
        """End the trial: release its resources."""
        self.cleanup()

    @property
    def iteration(self) -> int:
        """The number of completed steps."""
        return self._iteration

    @property
    def training_iteration(self) -> int:
        """The number of completed steps."""
        return self._iteration

    @property
    def logdir(self) -> str | None:
        """The trial's folder."""
        return self._logdir

    @property
    def trial_id(self) -> str:
        """The id of the trial."""
        return self._trial_id

    @property
    def trial_name(self) -> str:
        """The name of the trial."""
        return self._trial_name

    @property
    def trial_resources(self) -> PlacementGroupFactory | None:
        """The resources of the trial."""
        return self._trial_resources

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the trial."""
        return self.config
