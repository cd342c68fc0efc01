"""Extension types that Arrow and pandas lack: tensors and Python objects."""

from __future__ import annotations

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
    FixedShapeTensorType,
    TensorArray,
    TensorDtype,
)

__all__ = [
    "ArrowPythonObjectArray",
    "ArrowPythonObjectScalar",
    "ArrowPythonObjectType",
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorDtype",
]
