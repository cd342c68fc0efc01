"""Transforms of torchvision: their inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skate
from skate.data import Dataset
from skate.data.preprocessors import TorchVisionPreprocessor

torch = pytest.importorskip("torch")


def images(*shapes: tuple[int, ...]) -> Dataset:
    rows = [{"image": np.full(shape, i, np.float64), "label": i} for i, shape in enumerate(shapes)]
    return skate.data.from_items(rows)


def to_tensor(image: Any) -> Any:
    """Take an array and no tensor, as the transform of this name does."""
    if not isinstance(image, np.ndarray):
        raise TypeError(f"an array, not {type(image)}")
    return torch.as_tensor(image).permute(2, 0, 1)


def shapes_after(made: TorchVisionPreprocessor, ds: Dataset, column: str = "image") -> list[tuple[int, ...]]:
    return [row[column].shape for row in made.transform(ds).take_all()]


@pytest.mark.parametrize("transform", [lambda tensor: tensor.permute(2, 0, 1), to_tensor])
def test_a_transform_takes_tensors_or_arrays(transform: Any) -> None:
    made = TorchVisionPreprocessor(["image"], transform=transform)
    assert shapes_after(made, images((4, 5, 3), (4, 5, 3))) == [(3, 4, 5)] * 2


def test_images_can_differ_in_shape() -> None:
    made = TorchVisionPreprocessor(["image"], transform=to_tensor)
    assert shapes_after(made, images((2, 5, 3), (4, 5, 3))) == [(3, 2, 5), (3, 4, 5)]


def test_a_whole_batch_can_be_given() -> None:
    seen: list[tuple[int, ...]] = []

    def halved(batch: Any) -> Any:
        seen.append(batch.shape)
        return torch.as_tensor(batch)[:, :2]

    made = TorchVisionPreprocessor(["image"], transform=halved, output_columns=["half"], batched=True)
    assert shapes_after(made, images((4, 5), (4, 5)), "half") == [(2, 5)] * 2
    assert seen == [(2, 4, 5)]


def test_other_columns_stay() -> None:
    made = TorchVisionPreprocessor(["image"], transform=to_tensor)
    found = made.transform(images((1, 1, 1), (1, 1, 1)))
    assert found.columns() == ["image", "label"]
    assert [row["label"] for row in found.take_all()] == [0, 1]


def test_what_is_no_image_is_an_error() -> None:
    made = TorchVisionPreprocessor(["image"], transform=lambda image: "text")
    with pytest.raises(ValueError, match="must return a tensor or an ndarray, got str: 'text'"):
        made.transform(images((1, 1))).materialize()


def test_an_error_of_the_transform_is_not_hidden() -> None:
    def broken(image: Any) -> Any:
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        TorchVisionPreprocessor(["image"], transform=broken).transform(images((1, 1))).materialize()


def test_the_text_names_the_transform() -> None:
    made = TorchVisionPreprocessor(["image"], transform=len)
    assert repr(made) == (
        "TorchVisionPreprocessor(columns=['image'], output_columns=['image'], transform=<built-in function len>)"
    )
