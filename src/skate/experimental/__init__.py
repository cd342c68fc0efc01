"""Ray's experimental APIs."""

from __future__ import annotations

from skate.experimental import compiled_dag_ref, tqdm_ray
from skate.experimental.locations import get_local_object_locations, get_object_locations

__all__ = ["compiled_dag_ref", "get_local_object_locations", "get_object_locations", "tqdm_ray"]
