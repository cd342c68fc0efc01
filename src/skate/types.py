"""Types for annotations."""

from skate._base.object_ref import ObjectRef

__all__ = ["ObjectRef"]
