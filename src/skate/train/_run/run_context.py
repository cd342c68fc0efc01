"""All that a run has been given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skate.train._config.datasets import DataConfig
from skate.train._config.shared import RunConfig, ScalingConfig
from skate.train._config.validation import ValidationConfig
from skate.train.backend import BackendConfig


@dataclass(frozen=True)
class RunContext:
    """What a run was set up with; callbacks get it.

    Attributes:
        run_id: A name that no other run has.
        run_config: Where the run is kept, and how it deals with failures.
        scaling_config: Its workers.
        train_loop_config: What the training function is given.
        backend_config: What connects the workers.
        datasets: The datasets, by name.
        dataset_config: How they are shared between the workers.
        metadata: What the user wants to be kept with each checkpoint.
        validation_config: What validates checkpoints.
    """

    run_id: str
    run_config: RunConfig
    scaling_config: ScalingConfig
    train_loop_config: Mapping[str, Any] | None = None
    backend_config: BackendConfig = field(default_factory=BackendConfig)
    datasets: Mapping[str, Any] = field(default_factory=dict)
    dataset_config: DataConfig = field(default_factory=DataConfig)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    validation_config: ValidationConfig | None = None

    def get_run_config(self) -> RunConfig:
        """Return where the run is kept, and how it deals with failures."""
        return self.run_config
