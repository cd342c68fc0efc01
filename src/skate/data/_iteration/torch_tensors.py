"""Converts batches to torch tensors: types, devices and pinned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skate.air import _worker_device
from skate.air._optional import load
from skate.data._arguments import ArgumentTypeError, check_type, message


def converter(
    dtypes: Any, device: Any, collate: Any, pin_memory: bool
) -> tuple[str, Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions that convert batches to tensors.

    Args:
        dtypes: A type for all columns, or a dict of types by column.
        device: The device of the tensors; "auto" is the device of the training worker, or the CPU.
        collate: Converts a batch instead: a function of a NumPy batch, or a CollateFn.
        pin_memory: Put the tensors into pinned memory, which a GPU copies asynchronously.

    Returns:
        The batch format, a function for the prefetch thread, and a function for the consumer.
    """
    torch = load("torch", "iter_torch_batches")
    from skate.data.collate_fn import ArrowBatchCollateFn, CollateFn, PandasBatchCollateFn

    if collate is not None and dtypes is not None:
        raise ValueError("collate_fn cannot be used with dtypes: the function that makes the tensors decides")
    for name, dtype in dtypes.items() if isinstance(dtypes, Mapping) else [("", dtypes)]:
        if dtype is not None:
            check_type(
                f"dtypes[{name!r}]" if name else "dtypes",
                dtype,
                torch.dtype,
                "a torch.dtype or a dict of them",
            )
    target = _device(torch, device)
    batch_format = "numpy"
    if isinstance(collate, ArrowBatchCollateFn):
        batch_format = "pyarrow"
    elif isinstance(collate, PandasBatchCollateFn):
        batch_format = "pandas"
    elif collate is not None and not callable(collate) and not isinstance(collate, CollateFn):
        raise ArgumentTypeError(message("collate_fn", "a function or a CollateFn", collate))

    def make(batch: Any) -> Any:
        tensors = collate(batch) if collate is not None else to_tensors(batch, dtypes)
        return _each(torch, tensors, lambda each: each.pin_memory()) if pin_memory else tensors

    def move(tensors: Any) -> Any:
        if target is None or target.type == "cpu":
            return tensors
        return _each(torch, tensors, lambda each: each.to(target, non_blocking=pin_memory))

    return batch_format, make, move


def to_tensors(batch: Mapping[str, np.ndarray[Any, Any]], dtypes: Any = None) -> dict[str, Any]:
    """Return the columns of a NumPy batch as tensors.

    Raises:
        TypeError: A column cannot be converted.
    """
    result = {}
    for name, values in batch.items():
        dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
        result[name] = to_tensor(values, dtype, name)
    return result


def to_tensor(values: np.ndarray[Any, Any], dtype: Any = None, name: str = "") -> Any:
    """Return an array as a tensor, which shares writable memory of the same type."""
    torch = load("torch", "iter_torch_batches")
    if values.dtype == object:
        try:
            values = np.stack([np.asarray(each) for each in values])
        except ValueError:
            raise TypeError(
                f"column {name!r} cannot be a tensor: its values have different shapes. Give a collate_fn that pads "
                "them, or leave the column out with select_columns."
            ) from None
    if values.dtype == np.uint16:
        values = values.astype(np.int32)
    elif values.dtype in (np.uint32, np.uint64):
        values = values.astype(np.int64)
    if values.dtype.kind not in "biufc":
        raise TypeError(
            f"column {name!r} cannot be a tensor: its values are {values.dtype}. Leave it out with select_columns or "
            "drop_columns, or give a collate_fn."
        )
    if not values.flags.writeable:
        # A tensor is writable, and shared memory of blocks is not.
        values = values.copy()
    tensor = torch.as_tensor(values)
    return tensor if dtype is None else tensor.to(dtype)


def _device(torch: Any, device: Any) -> Any:
    if device is None:
        return None
    if device == "auto":
        return _worker_device.current() or torch.device("cpu")
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        words = "a torch.device or its name, such as 'cpu' or 'cuda:0'"
        raise ValueError(message("device", words, device)) from error


def _each(torch: Any, tensors: Any, function: Callable[[Any], Any]) -> Any:
    """Return the same structure, with a function applied to each tensor."""
    if isinstance(tensors, torch.Tensor):
        return function(tensors)
    if isinstance(tensors, Mapping):
        return {name: _each(torch, each, function) for name, each in tensors.items()}
    if isinstance(tensors, (list, tuple)):
        return type(tensors)(_each(torch, each, function) for each in tensors)
    return tensors
