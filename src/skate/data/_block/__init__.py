"""Blocks, which are `pyarrow.Table` objects, and conversions to and from them."""

from __future__ import annotations

# Importing these registers the extension types, so that files and streams with them can be read.
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType

__all__ = ["PythonObjectType", "VariableShapedTensorType"]
