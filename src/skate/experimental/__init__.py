"""What Ray calls experimental: here for the programs that use it."""

from __future__ import annotations

from skate.experimental import compiled_dag_ref, tqdm_ray

__all__ = ["compiled_dag_ref", "tqdm_ray"]
