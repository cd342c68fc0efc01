"""Columns of Python objects, under Ray's names."""

from __future__ import annotations

from skate.data._block.objects import PythonObjectArray as ArrowPythonObjectArray
from skate.data._block.objects import PythonObjectScalar as ArrowPythonObjectScalar
from skate.data._block.objects import PythonObjectType as ArrowPythonObjectType

__all__ = ["ArrowPythonObjectArray", "ArrowPythonObjectScalar", "ArrowPythonObjectType"]
