"""Inference with torch in `map_batches`: the steps of a batch through a model, of which a program fills in some."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skate.air._optional import load
from skate.data._iteration.torch_tensors import to_tensors

__all__ = ["TorchInference"]

_logger = logging.getLogger(__name__)
_STEPS = ("initialize", "get_device", "collate", "process_on_device", "finalize")


class TorchInference:
    """A model for `map_batches`: derive from it, say what is computed, and give the class to `map_batches`.

    Each batch goes through `collate` (arrays to tensors), to the device, through `process_on_device`, back to the CPU,
    and through `finalize` (tensors to arrays). `collate` and `process_on_device` return tensors: one, a list of them
    or a dict; or a tuple of those and of anything else, which is handed to the next step as it is.

    Args:
        *args: Given to `initialize`: what `map_batches` got as `fn_constructor_args`.
        **kwargs: The same, by name.

    >>> import numpy as np, torch, skate
    >>> class Doubled(TorchInference):
    ...     def get_device(self):
    ...         return torch.device("cpu")
    ...     def process_on_device(self, input_batch, collated_tensors, collated_other):
    ...         return {"double": 2 * collated_tensors["id"]}
    >>> skate.data.range(3).map_batches(Doubled, batch_size=2, num_gpus=0).take_all()
    [{'double': 0}, {'double': 2}, {'double': 4}]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.initialize(*args, **kwargs)

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Load the model: called once, in the process that is going to use it."""

    def get_device(self) -> Any:
        """Return the device that `process_on_device` computes on: the process's GPU, if not said otherwise."""
        torch = load("torch", "TorchInference")
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"CUDA is not available to {type(self).__name__}: ask for a GPU with map_batches(num_gpus=1), or "
                "return torch.device('cpu') from get_device"
            )
        return torch.device("cuda")

    def collate(self, input_batch: Any) -> Any:
        """Return a batch as tensors on the CPU; if not said otherwise, a tensor for each array of a NumPy batch."""
        if not isinstance(input_batch, Mapping) or not all(
            isinstance(column, np.ndarray) for column in input_batch.values()
        ):
            raise TypeError(
                f"a batch that is a {type(input_batch).__name__} and no dict of arrays has no tensors that are known: "
                'override `collate`, or give map_batches batch_format="numpy"'
            )
        return to_tensors(input_batch)

    def process_on_device(self, input_batch: Any, collated_tensors: Any, collated_other: Any) -> Any:
        """Compute: return the tensors of the result, where they are.

        Args:
            input_batch: The batch before `collate`.
            collated_tensors: What `collate` made of it, on the device.
            collated_other: What else `collate` returned, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} must override process_on_device: what it computes")

    def finalize(self, input_batch: Any, output_tensors: Any, output_other: Any) -> Any:
        """Return the batch that follows; if not said otherwise, the tensors as arrays, in the same structure.

        Args:
            input_batch: The batch before `collate`.
            output_tensors: What `process_on_device` computed, on the CPU.
            output_other: What else it returned, or None.
        """
        if output_other is not None:
            raise TypeError(
                f"process_on_device of {type(self).__name__} returned output_other besides tensors, and nothing says "
                "where it goes. Override `finalize`."
            )
        return _each_tensor(output_tensors, lambda tensor: tensor.numpy(), self._unknown)

    def _unknown(self, value: Any) -> Any:
        raise TypeError(
            f"process_on_device of {type(self).__name__} returned a {type(value).__name__} where a tensor should be. "
            "Override `finalize` to make a batch of it."
        )


class Managed:
    """Takes batches through the steps of a model; `managed` derives a class from it for each model."""

    model_class: type[TorchInference]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._model = self.model_class(*args, **kwargs)
        self._device = load("torch", "TorchInference").device(self._model.get_device())

    def __call__(self, batch: Any) -> Any:
        """Return what the model makes of a batch."""
        model, device = self._model, self._device
        torch = load("torch", "TorchInference")
        cpu = torch.device("cpu")
        tensors, other = _split(model.collate(batch))
        self._check("collate must return CPU tensors, which are moved to the device for it", tensors, cpu)
        with torch.inference_mode():
            made, made_other = _split(
                model.process_on_device(batch, _each_tensor(tensors, lambda each: each.to(device)), other)
            )
        self._check(
            f"process_on_device must return tensors on {device}, which are moved back for it", made, device
        )
        return model.finalize(batch, _each_tensor(made, lambda each: each.to(cpu)), made_other)

    def _check(self, wanted: str, tensors: Any, device: Any) -> None:
        found: list[Any] = []
        _each_tensor(tensors, found.append)
        wrong = [each.device for each in found if each.device.type != device.type]
        if wrong:
            raise ValueError(f"{self.model_class.__name__}.{wanted}; one is on {wrong[0]}")


def is_inference(fn: Any) -> bool:
    """Tell whether what the user gave is a model's class."""
    return isinstance(fn, type) and issubclass(fn, TorchInference)


def managed(model: type[TorchInference]) -> type[Managed]:
    """Return the class whose instances take batches through a model's steps; it is called as the model is."""
    return type(model.__name__, (Managed,), {"model_class": model, "__doc__": model.__doc__})


def check(model: type[TorchInference], fn_args: Any, fn_kwargs: Any, num_gpus: Any) -> None:
    """Look at what a model was given to `map_batches` with."""
    if fn_args or fn_kwargs:
        raise ValueError(
            f"{model.__name__} takes no fn_args and no fn_kwargs: its steps get the batch alone. Give what it needs "
            "as fn_constructor_args: `initialize` gets them"
        )
    for name in _STEPS:
        step = getattr(model, name)
        if inspect.iscoroutinefunction(step) or inspect.isasyncgenfunction(step):
            raise TypeError(
                f"{model.__name__}.{name} is async, but nobody would wait for it: make it a plain method"
            )
    if "__call__" in vars(model):
        _logger.warning(
            "%s has a __call__, which will not be used directly: batches go through collate, process_on_device and "
            "finalize",
            model.__name__,
        )
    if num_gpus is None:
        _logger.warning(
            "%s is not given a GPU, because num_gpus is not set: map_batches(…, num_gpus=1), or num_gpus=0 if its "
            "get_device returns a CPU",
            model.__name__,
        )


def _split(returned: Any) -> tuple[Any, Any]:
    """Return the tensors and what came with them: a tuple of two means both."""
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned[0], returned[1]
    return returned, None


def _each_tensor(
    value: Any, function: Callable[[Any], Any], otherwise: Callable[[Any], Any] = lambda value: value
) -> Any:
    """Return the same dicts, lists and tuples, with a function applied to each tensor and another to what is none."""
    if isinstance(value, load("torch", "TorchInference").Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: _each_tensor(each, function, otherwise) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each_tensor(each, function, otherwise) for each in value)
    return otherwise(value)
