"""Models of torch in `map_batches`."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import skate
from skate.data.util.torch_inference import TorchInference

pytestmark = pytest.mark.ray_more


class Scaled(TorchInference):
    def initialize(self, scale: float = 2.0) -> None:  # type: ignore[override]  # what the program gives it
        self.scale = scale

    def get_device(self) -> torch.device:
        return torch.device("cpu")

    def process_on_device(self, input_batch: Any, collated_tensors: Any, collated_other: Any) -> Any:
        return {"y": collated_tensors["id"] * self.scale}


@pytest.mark.usefixtures("where")
def test_batches_go_through_the_model() -> None:
    class Named(Scaled):
        """Sends text along, which no tensor can hold."""

        def collate(self, input_batch: Any) -> Any:
            return {"id": torch.as_tensor(input_batch["id"].copy())}, [
                f"number {n}" for n in input_batch["id"]
            ]

        def process_on_device(self, input_batch: Any, collated_tensors: Any, collated_other: Any) -> Any:
            made = super().process_on_device(input_batch, collated_tensors, collated_other)
            return made, collated_other

        def finalize(self, input_batch: Any, output_tensors: Any, output_other: Any) -> Any:
            return {"y": output_tensors["y"].numpy(), "name": output_other}

    ds = skate.data.range(5).map_batches(
        Named, batch_size=2, num_gpus=0, concurrency=1, fn_constructor_kwargs={"scale": 0.5}
    )
    assert ds.take(2) == [{"y": 0.0, "name": "number 0"}, {"y": 0.5, "name": "number 1"}]
    assert "MapBatches(Named)" in ds.stats()


def test_arrays_become_tensors_and_tensors_arrays_if_nothing_else_is_said() -> None:
    model = Scaled()
    tensors = model.collate({"x": np.zeros((3, 2), np.float32)})
    assert tensors["x"].shape == (3, 2)
    made = model.finalize({}, {"y": [torch.ones(2), (torch.zeros(1),)]}, None)
    assert isinstance(made["y"][0], np.ndarray)
    assert isinstance(made["y"][1], tuple)


@pytest.mark.parametrize("batch", [pd.DataFrame({"x": [1.0]}), [1, 2], {"x": [1.0]}])
def test_a_batch_without_arrays_needs_a_collate_of_its_own(batch: Any) -> None:
    with pytest.raises(TypeError, match="override `collate`"):
        Scaled().collate(batch)


@pytest.mark.parametrize(
    ("tensors", "other", "word"), [({"y": "text"}, None, "str"), ({"y": torch.ones(1)}, [1], "output_other")]
)
def test_what_is_no_tensor_needs_a_finalize_of_its_own(tensors: Any, other: Any, word: str) -> None:
    with pytest.raises(TypeError, match=f"{word}.*Override `finalize`"):
        Scaled().finalize({}, tensors, other)


def test_the_device_is_a_gpu_and_must_be_there_if_nothing_else_is_said() -> None:
    if torch.cuda.is_available():
        assert TorchInference().get_device().type == "cuda"
    else:
        with pytest.raises(RuntimeError, match="num_gpus=1"):
            TorchInference().get_device()


def test_what_a_model_cannot_use_is_refused_when_the_plan_is_made() -> None:
    class Waiting(Scaled):
        async def collate(self, input_batch: Any) -> Any: ...

    ds = skate.data.range(2)
    with pytest.raises(ValueError, match="fn_args"):
        ds.map_batches(Scaled, fn_args=(1,))
    with pytest.raises(TypeError, match="async"):
        ds.map_batches(Waiting)
    with pytest.raises(ValueError, match="callable"):
        ds.map_batches(Scaled())  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="process_on_device"):
        TorchInference().process_on_device({}, {}, None)


def test_a_model_that_was_given_no_gpu_is_talked_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        skate.data.range(2).map_batches(Scaled, batch_size=1)
    assert "num_gpus" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        skate.data.range(2).map_batches(Scaled, batch_size=1, num_gpus=0)
    assert not caplog.text


def test_a_model_with_a_call_of_its_own_is_told_that_it_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Called(Scaled):
        def __call__(self, batch: Any) -> Any: ...

    with caplog.at_level(logging.WARNING):
        skate.data.range(2).map_batches(Called, batch_size=1, num_gpus=0)
    assert "Called defines __call__, which will not be used directly" in caplog.text
