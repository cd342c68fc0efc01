"""Checkpoints of torch models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from skate.data.preprocessors import StandardScaler
from skate.train import Checkpoint
from skate.train.torch import TorchCheckpoint


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_model_comes_back() -> None:
    model = torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_model(model)
    assert same(checkpoint.get_model(), model)
    assert same(TorchCheckpoint.from_directory(checkpoint.path).get_model(), model)


def test_weights_need_a_model_to_go_into() -> None:
    model = torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_state_dict(model.state_dict())
    assert same(checkpoint.get_model(torch.nn.Linear(2, 1)), model)
    with pytest.raises(ValueError, match="contains only weights"):
        checkpoint.get_model()


def test_weights_of_a_wrapped_model_go_into_a_plain_one() -> None:
    model = torch.nn.Linear(2, 1)
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    assert same(TorchCheckpoint.from_state_dict(wrapped).get_model(torch.nn.Linear(2, 1)), model)


def test_a_preprocessor_is_kept_with_its_model() -> None:
    model = torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_model(model, preprocessor=StandardScaler(["a"]))
    assert isinstance(checkpoint.get_preprocessor(), StandardScaler)
    assert TorchCheckpoint.from_model(model).get_preprocessor() is None


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"{tmp_path} contains no model.pt"):
        TorchCheckpoint(Checkpoint(tmp_path).path).get_model()
