"""Sees that a Lightning trainer will train with the workers there are."""

from __future__ import annotations

from typing import Any

from skate.train.lightning._environment import RayLightningEnvironment
from skate.train.lightning._strategies import RayDDPStrategy, RayDeepSpeedStrategy, RayFSDPStrategy

__all__ = ["prepare_trainer"]


def prepare_trainer(trainer: Any) -> Any:
    """Check that a Lightning `Trainer` is set up for the workers of this run, and return it.

    Args:
        trainer: Lightning's trainer.

    Raises:
        RuntimeError: Its strategy or its environment is Lightning's own, which would start processes by itself.
    """
    fitting = (RayDDPStrategy, RayFSDPStrategy, RayDeepSpeedStrategy)
    if not isinstance(trainer.strategy, fitting):
        raise RuntimeError(
            f"the Lightning trainer's strategy is {type(trainer.strategy).__name__}: give it "
            "strategy=RayDDPStrategy(), RayFSDPStrategy() or RayDeepSpeedStrategy()"
        )
    environment = trainer.strategy.cluster_environment
    if not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"the Lightning trainer's environment is {type(environment).__name__}: give it "
            "plugins=[RayLightningEnvironment()]"
        )
    return trainer
