"""Inference with torch in `map_batches`: a sequence of steps of which a program overrides some."""

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
    """Base class of models for `map_batches`: pass a subclass that defines the computation.

    Each batch passes through `collate` (arrays to tensors), to the device, through `process_on_device`, back to the
    CPU, and through `finalize` (tensors to arrays). `collate` and `process_on_device` return tensors: one, a list or a
    dict of them; or a tuple of those and another value, which is passed to the next step unchanged.

    Args:
        *args: Passed to `initialize`: the `fn_constructor_args` of `map_batches`.
        **kwargs: Passed to `initialize`: the `fn_constructor_kwargs` of `map_batches`.

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
        """Load the model; called once in the process that uses it."""

    def get_device(self) -> Any:
        """Return the device for `process_on_device`; by default the GPU of the process."""
        torch = load("torch", "TorchInference")
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"CUDA is not available to {type(self).__name__}: request a GPU with map_batches(num_gpus=1), or "
                "return torch.device('cpu') from get_device"
            )
        return torch.device("cuda")

    def collate(self, input_batch: Any) -> Any:
        """Convert a batch to tensors on the CPU; by default, one tensor per array of a NumPy batch."""
        if not isinstance(input_batch, Mapping) or not all(
            isinstance(column, np.ndarray) for column in input_batch.values()
        ):
            raise TypeError(
                f"a batch must be a dict of arrays, got {type(input_batch).__name__}: "
                'override `collate`, or pass batch_format="numpy" to map_batches'
            )
        return to_tensors(input_batch)

    def process_on_device(self, input_batch: Any, collated_tensors: Any, collated_other: Any) -> Any:
        """Run the model and return its output tensors, on the device.

        Args:
            input_batch: The batch before `collate`.
            collated_tensors: Tensors from `collate`, on the device.
            collated_other: Other value from `collate`, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} must override process_on_device")

    def finalize(self, input_batch: Any, output_tensors: Any, output_other: Any) -> Any:
        """Return the output batch; by default, the tensors as arrays in the same structure.

        Args:
            input_batch: The batch before `collate`.
            output_tensors: Tensors from `process_on_device`, on the CPU.
            output_other: Other value from `process_on_device`, or None.
        """
        if output_other is not None:
            raise TypeError(
                f"process_on_device of {type(self).__name__} returned output_other besides tensors, and the "
                "default `finalize` cannot handle it. Override `finalize`."
            )
        return _map_tensors(output_tensors, lambda tensor: tensor.numpy(), self._raise_not_a_tensor)

    def _raise_not_a_tensor(self, value: Any) -> Any:
        raise TypeError(
            f"process_on_device of {type(self).__name__} returned a {type(value).__name__} instead of a tensor. "
            "Override `finalize` to convert it to a batch."
        )


class ManagedModel:
    """Pass batches through the steps of a model; `wrap_model` derives one class per model."""

    model_class: type[TorchInference]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._model = self.model_class(*args, **kwargs)
        self._device = load("torch", "TorchInference").device(self._model.get_device())

    def __call__(self, batch: Any) -> Any:
        """Return the output of the model for a batch."""
        model, device = self._model, self._device
        torch = load("torch", "TorchInference")
        cpu = torch.device("cpu")
        tensors, other = _split(model.collate(batch))
        self._check("collate must return CPU tensors, which are moved to the device for it", tensors, cpu)
        with torch.inference_mode():
            made, made_other = _split(
                model.process_on_device(batch, _map_tensors(tensors, lambda each: each.to(device)), other)
            )
        self._check(
            f"process_on_device must return tensors on {device}, which are moved back for it", made, device
        )
        return model.finalize(batch, _map_tensors(made, lambda each: each.to(cpu)), made_other)

    def _check(self, wanted: str, tensors: Any, device: Any) -> None:
        found: list[Any] = []
        _map_tensors(tensors, found.append)
        wrong = [each.device for each in found if each.device.type != device.type]
        if wrong:
            raise ValueError(f"{self.model_class.__name__}.{wanted}; one is on {wrong[0]}")


def is_inference(fn: Any) -> bool:
    """Return whether the function passed by the user is a model class."""
    return isinstance(fn, type) and issubclass(fn, TorchInference)


def wrap_model(model: type[TorchInference]) -> type[ManagedModel]:
    """Return the class whose instances pass batches through the steps of a model; it has the name of the model."""
    return type(model.__name__, (ManagedModel,), {"model_class": model, "__doc__": model.__doc__})


def check(model: type[TorchInference], fn_args: Any, fn_kwargs: Any, num_gpus: Any) -> None:
    """Check the arguments of `map_batches` for a model."""
    if fn_args or fn_kwargs:
        raise ValueError(
            f"{model.__name__} does not accept fn_args or fn_kwargs: its steps receive only the batch. Pass arguments "
            "as fn_constructor_args, which `initialize` receives"
        )
    for name in _STEPS:
        step = getattr(model, name)
        if inspect.iscoroutinefunction(step) or inspect.isasyncgenfunction(step):
            raise TypeError(
                f"{model.__name__}.{name} is async, but its steps are not awaited: make it a regular method"
            )
    if "__call__" in vars(model):
        _logger.warning(
            "%s defines __call__, which will not be used directly: batches pass through collate, "
            "process_on_device and finalize",
            model.__name__,
        )
    if num_gpus is None:
        _logger.warning(
            "%s gets no GPU because num_gpus is not set: pass num_gpus=1, or num_gpus=0 if its "
            "get_device returns a CPU",
            model.__name__,
        )


def _split(returned: Any) -> tuple[Any, Any]:
    """Split a return value into the tensors and another value: a tuple of two holds both."""
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned[0], returned[1]
    return returned, None


def _map_tensors(
    value: Any, function: Callable[[Any], Any], otherwise: Callable[[Any], Any] = lambda value: value
) -> Any:
    """Apply a function to each tensor in dicts, lists and tuples, and another function to other values."""
    if isinstance(value, load("torch", "TorchInference").Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: _map_tensors(each, function, otherwise) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map_tensors(each, function, otherwise) for each in value)
    return otherwise(value)
