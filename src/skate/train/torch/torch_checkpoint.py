"""A checkpoint that is a model of torch's, or its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from skate.air import _arguments as arguments
from skate.train._frameworks.checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

__all__ = ["TorchCheckpoint"]

_WRAPPER = "module."  # what the names of a wrapped model's weights begin with


class TorchCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one model or its weights, in a file of `torch.save`.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> checkpoint = TorchCheckpoint.from_state_dict(model.state_dict())
        >>> torch.equal(checkpoint.get_model(torch.nn.Linear(2, 1)).weight, model.weight)
        True
    """

    MODEL_FILENAME = "model.pt"

    @classmethod
    def from_state_dict(
        cls, state_dict: dict[str, Any], *, preprocessor: Preprocessor | None = None
    ) -> TorchCheckpoint:
        """Write a model's weights into a new temporary folder.

        Args:
            state_dict: The weights, as `model.state_dict()` returns them.
            preprocessor: Of the model's data, to be kept with it.
        """
        must = "a dictionary of weights, as model.state_dict() returns it"
        arguments.instance("state_dict", state_dict, Mapping, must)
        return cls._of(state_dict, preprocessor)

    @classmethod
    def from_model(
        cls, model: torch.nn.Module, *, preprocessor: Preprocessor | None = None
    ) -> TorchCheckpoint:
        """Write a whole model into a new temporary folder: as a pickle, which needs the model's class when it is read.

        Args:
            model: The model; of one that `prepare_model` has wrapped, what is inside.
            preprocessor: Of the model's data, to be kept with it.
        """
        arguments.instance("model", model, torch.nn.Module, "a torch.nn.Module")
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        return cls._of(model, preprocessor)

    @classmethod
    def _of(cls, content: Any, preprocessor: Preprocessor | None) -> TorchCheckpoint:
        folder = tempfile.mkdtemp(prefix="skate_checkpoint_")
        torch.save(content, Path(folder, cls.MODEL_FILENAME))
        checkpoint = cls(folder)
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """Return the model. It is read with pickle, which can run code: for checkpoints that you trust.

        Args:
            model: Takes the weights, if the checkpoint holds no more than those.

        Raises:
            RuntimeError: The checkpoint holds no such file.
            ValueError: It holds weights, and no model was given.
        """
        arguments.instance("model", model, torch.nn.Module, "a torch.nn.Module", optional=True)
        with self.as_directory() as folder:
            file = Path(folder, self.MODEL_FILENAME)
            if not file.exists():
                raise RuntimeError(
                    f"there is no {self.MODEL_FILENAME} in {self.path}: make the checkpoint with from_model or "
                    "from_state_dict"
                )
            content = torch.load(file, map_location="cpu", weights_only=False)
        if isinstance(content, torch.nn.Module):
            return content
        if model is None:
            raise ValueError(
                f"{self.path} holds weights and no model: call get_model(model) with a model that takes them."
            )
        if not any(name.startswith(_WRAPPER) for name in model.state_dict()):
            content = {name.removeprefix(_WRAPPER): value for name, value in content.items()}
        model.load_state_dict(content)
        return model
