"""Models in mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from skate import train
from skate.train.torch import TorchTrainer, accelerate, prepare_model


@pytest.fixture
def fit_here(fit_with: Callable[..., train.Result]) -> Callable[..., train.Result]:
    """Train in this process."""
    return partial(fit_with, TorchTrainer, workers=0)


def test_a_model_in_mixed_precision_keeps_its_class_and_the_names_of_its_weights(
    fit_here: Callable[..., train.Result],
) -> None:
    def function() -> None:
        accelerate(amp=True)
        model = prepare_model(torch.nn.Linear(2, 1))
        out = model(torch.ones(1, 2))
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 3))  # also an error ends the region
        train.report(
            {
                "class": type(model).__name__,
                "names": list(model.state_dict()),
                "out": str(out.dtype),
                "weight": str(model.weight.dtype),
                "after": torch.is_autocast_enabled("cpu"),
            }
        )

    for _ in range(2):  # a process may run several training functions
        assert fit_here(function).metrics == {
            "class": "Linear",
            "names": ["weight", "bias"],
            "out": "torch.bfloat16",
            "weight": "torch.float32",
            "after": False,
        }


def test_precision_is_chosen_once_and_in_a_training_function(fit_here: Callable[..., train.Result]) -> None:
    def function() -> None:
        accelerate()
        with pytest.raises(RuntimeError, match="can be called once"):
            accelerate(amp=True)
        train.report({"out": str(prepare_model(torch.nn.Linear(2, 1))(torch.ones(1, 2)).dtype)})

    assert fit_here(function).metrics == {"out": "torch.float32"}
    with pytest.raises(RuntimeError, match="only inside a training function"):
        accelerate(amp=True)
