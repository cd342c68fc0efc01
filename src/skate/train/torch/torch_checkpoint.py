"""Checkpoints with a torch model or its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from skate.air import _arguments as arguments
from skate.train._frameworks.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from skate.data import Preprocessor

__all__ = ["TorchCheckpoint"]

_WRAPPER = "module."  # the prefix of the names of a wrapped model's weights


class TorchCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one model or its weights, in a file written by `torch.save`.

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
            preprocessor: The preprocessor of the model's data.
        """
        must = "a dictionary of weights, as model.state_dict() returns it"
        arguments.instance("state_dict", state_dict, Mapping, must)
        return cls._of(state_dict, preprocessor)

    @classmethod
    def from_model(
        cls, model: torch.nn.Module, *, preprocessor: Preprocessor | None = None
    ) -> TorchCheckpoint:
        """Write a whole model into a new temporary folder, as a pickle that needs the model's class to be read.

        Args:
            model: The model; a wrapper of `prepare_model` is removed.
            preprocessor: The preprocessor of the model's data.
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
        """Return the model, read with pickle, which can run code: use it only on checkpoints that you trust.

        Args:
            model: The model to load the weights into, if the checkpoint contains only weights.

        Raises:
            RuntimeError: The checkpoint contains no model file.
            ValueError: It contains only weights, and no model was given.
        """
        arguments.instance("model", model, torch.nn.Module, "a torch.nn.Module", optional=True)
        with self.as_directory() as folder:
            file = Path(folder, self.MODEL_FILENAME)
            if not file.exists():
                raise RuntimeError(
                    f"{self.path} contains no {self.MODEL_FILENAME}: create the checkpoint with from_model or "
                    "from_state_dict"
                )
            content = torch.load(file, map_location="cpu", weights_only=False)
        if isinstance(content, torch.nn.Module):
            return content
        if model is None:
            raise ValueError(
                f"{self.path} contains only weights: call get_model(model) with a model to load them into."
            )
        if not any(name.startswith(_WRAPPER) for name in model.state_dict()):
            content = {name.removeprefix(_WRAPPER): value for name, value in content.items()}
        model.load_state_dict(content)
        return model
