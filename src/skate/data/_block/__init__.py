"""What a block is, a `pyarrow.Table`, and every way into it and out of it."""

from __future__ import annotations

# Importing these registers the extension types, so that files and streams that hold them can be read.
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType

__all__ = ["PythonObjectType", "VariableShapedTensorType"]
