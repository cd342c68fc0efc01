"""Extension types that Arrow and pandas lack: tensors and Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate.data.extensions.object_extension import (
    ArrowPythonObjectArray,
    ArrowPythonObjectScalar,
    ArrowPythonObjectType,
)
from skate.data.extensions.tensor_extension import (
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
    FixedShapeTensorFormat,
    FixedShapeTensorType,
    __getattr__,  # noqa: F401  # imports TensorArray and TensorDtype on their first use
)

if TYPE_CHECKING:
    from skate.data.extensions._pandas import TensorArray, TensorDtype

__all__ = [
    "ArrowPythonObjectArray",
    "ArrowPythonObjectScalar",
    "ArrowPythonObjectType",
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorFormat",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorDtype",
]
