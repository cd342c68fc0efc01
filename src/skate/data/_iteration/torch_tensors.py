"""Conversion of batches to torch tensors: types, devices and pinned memory."""

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
    """Return the functions that convert batches to tensors.

    Args:
        dtypes: A dtype for all columns, or a dict by column.
        device: Device of the tensors; "auto" is the device of the training worker, or the CPU.
        collate: Custom conversion: a function of a NumPy batch, or a CollateFn.
        pin_memory: Put the tensors into pinned memory, from which a GPU can copy asynchronously.

    Returns:
        The batch format it needs, the function for each prefetched batch, and the function for each consumed batch.
    """
    torch = load("torch", "iter_torch_batches")
    from skate.data.collate_fn import ArrowBatchCollateFn, CollateFn, PandasBatchCollateFn

    if collate is not None and dtypes is not None:
        raise ValueError("collate_fn cannot be used with dtypes: collate_fn determines the types")
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
        return pin(tensors) if pin_memory else tensors

    def move(tensors: Any) -> Any:
        if target is None:
            return tensors
        tensors = join_chunks(tensors)
        if target.type == "cpu":
            return tensors
        return map_tensors(tensors, lambda each: each.to(target, non_blocking=pin_memory))

    return batch_format, make, move


def to_tensors(batch: Mapping[str, np.ndarray[Any, Any]], dtypes: Any = None) -> dict[str, Any]:
    """Convert the columns of a NumPy batch to tensors.

    Raises:
        TypeError: A column cannot be converted.
    """
    result = {}
    for name, values in batch.items():
        dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
        result[name] = to_tensor(values, dtype, name)
    return result


def to_tensor(values: np.ndarray[Any, Any], dtype: Any = None, name: str = "") -> Any:
    """Convert an array to a tensor, without a copy if the array is writable and the type stays the same."""
    torch = load("torch", "iter_torch_batches")
    if values.dtype == object and all(each is None for each in values):
        values = np.full(len(values), np.nan, np.float32)  # a column without a type: nothing but nulls
    if values.dtype == object:
        try:
            values = np.stack([np.asarray(each) for each in values])
        except ValueError:
            raise TypeError(
                f"column {name!r} cannot be a tensor: its values have different shapes. Pass a collate_fn that pads "
                "them, or drop the column with select_columns."
            ) from None
    if values.dtype == np.uint16:
        values = values.astype(np.int32)
    elif values.dtype in (np.uint32, np.uint64):
        values = values.astype(np.int64)
    if values.dtype.kind not in "biufc":
        raise TypeError(
            f"column {name!r} cannot be a tensor: its values are {values.dtype}. Drop it with select_columns or "
            "drop_columns, or pass a collate_fn."
        )
    if not values.flags.writeable:
        # A tensor may be modified, and torch does not detect read-only shared memory.
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


def pin(tensors: Any) -> Any:
    """Copy the tensors of a nested structure that are on the CPU into pinned memory."""
    return map_tensors(
        tensors,
        lambda each: each.pin_memory() if each.device.type == "cpu" and not each.is_pinned() else each,
    )


def join_chunks(tensors: Any) -> Any:
    """Concatenate the chunks of each column, if a batch has a list of tensors for each of its columns."""
    torch = load("torch", "iter_torch_batches")

    def are_chunks(parts: Any) -> bool:
        return (
            isinstance(parts, (list, tuple))
            and all(isinstance(each, torch.Tensor) and each.ndim > 0 for each in parts)
            and len({(each.dtype, each.shape[1:]) for each in parts}) == 1
        )

    def join(parts: Any) -> Any:
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    if isinstance(tensors, Mapping) and all(map(are_chunks, tensors.values())):
        return {name: join(parts) for name, parts in tensors.items()}
    if isinstance(tensors, (list, tuple)) and all(map(are_chunks, tensors)):
        return type(tensors)(map(join, tensors))
    return tensors


def map_tensors(tensors: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to each tensor of a nested structure."""
    torch = load("torch", "iter_torch_batches")
    if isinstance(tensors, torch.Tensor):
        return function(tensors)
    if isinstance(tensors, Mapping):
        return {name: map_tensors(each, function) for name, each in tensors.items()}
    if isinstance(tensors, (list, tuple)):
        return type(tensors)(map_tensors(each, function) for each in tensors)
    return tensors
