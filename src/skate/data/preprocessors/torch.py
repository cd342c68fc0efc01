"""Torchvision transforms of columns of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from skate.air._optional import load
from skate.data._arguments import checked
from skate.data._block import tensors
from skate.data._block.columns import as_ndarray, is_tensor_like
from skate.data._preprocessors.columns import require_column
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.preprocessor import SerializablePreprocessorBase
from skate.data.util.data_batch_conversion import BatchFormat

__all__ = ["TorchVisionPreprocessor"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.torchvision_preprocessor")
class TorchVisionPreprocessor(SerializablePreprocessorBase):
    """Apply a torchvision transform, or any function of a tensor, to columns of images. Needs torch.

    Args:
        columns: The columns.
        transform: The transform. It receives a tensor, or an ndarray if it does not accept tensors, as `ToTensor` does
            not. It returns a tensor or an ndarray.
        output_columns: Names of the output columns; the input columns by default.
        batched: Whether the transform receives a batch of images, as an ndarray, instead of single images.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> ds = skate.data.from_items([{"image": np.zeros((2, 4, 3))}])
    >>> turned = TorchVisionPreprocessor(["image"], transform=lambda image: image.permute(2, 0, 1))
    >>> turned.transform(ds).take_all()[0]["image"].shape
    (3, 2, 4)
    """

    _is_fittable = False

    columns = Option[list[str]]()
    output_columns = Option[list[str]](like="columns")
    torchvision_transform = Option[Callable[[Any], Any]]()
    batched = Option(False)

    @checked()
    def __init__(
        self,
        columns: list[str],
        transform: Callable[[Any], Any],
        output_columns: list[str] | None = None,
        batched: bool = False,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._torchvision_transform = transform
        self._output_columns = resolve_outputs(columns, output_columns)
        self._batched = batched

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return NumPy: a dict of arrays."""
        return BatchFormat.NUMPY

    def _transform_numpy(self, np_data: Any) -> Any:
        if isinstance(np_data, np.ndarray):
            return self._transform_images(np_data)
        for name in self.columns:
            require_column(name, np_data, self)
        made = {
            output: self._transform_images(np_data[name])
            for name, output in zip(self.columns, self.output_columns, strict=True)
        }
        return {**np_data, **made}

    def _transform_images(self, images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.batched:
            return _array(self.torchvision_transform(_writable(images)))
        results = [_array(self._call(_writable(image))) for image in images]
        if len({result.shape for result in results}) == 1:
            return np.stack(results)
        return tensors.object_array(results)

    def _call(self, image: npt.NDArray[Any]) -> Any:
        torch = load("torch", "TorchVisionPreprocessor")
        try:
            return self.torchvision_transform(torch.as_tensor(image))
        except TypeError:
            # It does not accept a tensor. If it also fails with an array, this error is the context of that one.
            return self.torchvision_transform(image)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(columns={self.columns!r}, output_columns={self.output_columns!r}, "
            f"transform={self.torchvision_transform!r})"
        )


def _writable(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # A tensor may be modified, and torch does not detect read-only shared memory.
    return image if image.flags.writeable else image.copy()


def _array(result: Any) -> npt.NDArray[Any]:
    if not isinstance(result, np.ndarray) and not is_tensor_like(result):
        raise ValueError(
            f"the transform of a TorchVisionPreprocessor must return a tensor or an ndarray, got "
            f"{type(result).__name__}:"
            f" {result!r}"
        )
    return as_ndarray(result)
