"""Replaces `ray._raylet`: the types of ids and references."""

from __future__ import annotations

from skate._base.generator import DynamicObjectRefGenerator, ObjectRefGenerator
from skate._base.ids import (
    ActorClassID,
    ActorID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from skate._base.object_ref import ObjectRef

__all__ = [
    "ActorClassID",
    "ActorID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
]
