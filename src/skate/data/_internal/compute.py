"""Stand-in for `ray.data._internal.compute`: the strategies of `map_batches`, under the path of older programs."""

from skate.data._compute import ActorPoolStrategy, ComputeStrategy, TaskPoolStrategy

__all__ = ["ActorPoolStrategy", "ComputeStrategy", "TaskPoolStrategy"]
