"""The configuration of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.datasets import DataConfig
from skate.train._config.validation_config import ValidationConfig
from skate.train._workers.sessions import TrialInfo
from skate.train.backend import BackendConfig


@dataclass(frozen=True)
class RunContext:
    """The configuration of a run, as callbacks receive it.

    Attributes:
        run_id: A unique id of the run.
        run_config: Where the run is stored, and how it handles failures.
        scaling_config: The number and the resources of the workers.
        train_loop_config: The argument of the training function.
        backend_config: How the workers are connected.
        datasets: The datasets, by name.
        dataset_config: How the datasets are split between the workers.
        metadata: The user's metadata for each checkpoint.
        validation_config: How checkpoints are validated.
        trial: The trial that the run belongs to, if Tune runs it.
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
    trial: TrialInfo | None = None

    def get_run_config(self) -> RunConfig:
        """Return where the run is stored, and how it handles failures."""
        return self.run_config
