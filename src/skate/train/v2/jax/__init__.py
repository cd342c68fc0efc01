"""Training with JAX."""

from skate.train.v2.jax.config import JaxConfig
from skate.train.v2.jax.jax_trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
