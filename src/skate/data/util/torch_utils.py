"""Conversions to torch tensors, for a `collate_fn` and for programs without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.air._optional import load
from skate.data._block import batches
from skate.data._iteration import torch_tensors

__all__ = [
    "arrow_batch_to_tensors",
    "concat_tensors_to_device",
    "convert_ndarray_batch_to_torch_tensor_batch",
    "convert_ndarray_to_torch_tensor",
    "convert_table_to_torch_tensor",
    "move_tensors_to_device",
    "pin_tensors_to_memory",
]


def convert_ndarray_to_torch_tensor(
    ndarray: npt.NDArray[Any], dtype: Any = None, device: Any = None, pin_memory: bool = False
) -> Any:
    """Convert an array to a tensor.

    Args:
        ndarray: The array.
        dtype: The type of the tensor; that of the array by default.
        device: The device of the tensor; the CPU by default.
        pin_memory: Put the tensor into pinned memory, which a GPU copies asynchronously.
    """
    tensor = torch_tensors.to_tensor(ndarray, dtype)
    if device is not None:
        tensor = tensor.to(device)
    return tensor.pin_memory() if pin_memory else tensor


def convert_ndarray_batch_to_torch_tensor_batch(
    ndarrays: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]],
    dtypes: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Any:
    """Convert an array, or a dict of arrays, to a tensor or a dict of tensors.

    Args:
        ndarrays: The array or arrays.
        dtypes: The type of all tensors, or a dict of types by column.
        device: As for `convert_ndarray_to_torch_tensor`.
        pin_memory: As for `convert_ndarray_to_torch_tensor`.
    """
    if isinstance(ndarrays, Mapping):
        return {
            name: convert_ndarray_to_torch_tensor(values, _of_column(dtypes, name), device, pin_memory)
            for name, values in ndarrays.items()
        }
    if isinstance(dtypes, Mapping):
        if len(dtypes) != 1:
            raise ValueError(f"A single array needs a single dtype, got {dict(dtypes)}")
        dtypes = next(iter(dtypes.values()))
    return convert_ndarray_to_torch_tensor(ndarrays, dtypes, device, pin_memory)


def convert_table_to_torch_tensor(
    data_batch: pa.Table, columns: Any = None, column_dtypes: Any = None, unsqueeze: bool = True
) -> Any:
    """Convert columns of an Arrow table to one tensor, or lists of columns to a list of tensors.

    Args:
        data_batch: The table.
        columns: A list of columns, or a list of such lists; all columns by default.
        column_dtypes: The type of all tensors, or with lists of columns a list of types.
        unsqueeze: Add a second dimension to each column, and concatenate along it.
    """
    several = bool(columns) and isinstance(columns[0], (list, tuple))
    if not several:
        if isinstance(column_dtypes, (list, tuple, Mapping)):
            raise TypeError(f"A list of columns needs a single column_dtypes, got {column_dtypes!r}")
        return _side_by_side(data_batch, columns or data_batch.column_names, column_dtypes, unsqueeze)
    each = column_dtypes if isinstance(column_dtypes, (list, tuple)) else [column_dtypes] * len(columns)
    return [
        _side_by_side(data_batch, names, dtype, unsqueeze) for names, dtype in zip(columns, each, strict=True)
    ]


def _side_by_side(table: pa.Table, names: Sequence[str], dtype: Any, unsqueeze: bool) -> Any:
    arrays = batches.to_batch(table.select(list(names)), "numpy")
    tensors = [torch_tensors.to_tensor(arrays[name], dtype, name) for name in names]
    if unsqueeze:
        tensors = [each.unsqueeze(1) for each in tensors]
    return tensors[0] if len(tensors) == 1 else load("torch", "torch_utils").cat(tensors, dim=1)


def arrow_batch_to_tensors(
    batch: pa.Table,
    dtypes: Any = None,
    combine_chunks: bool = False,
    pin_memory: bool = False,
    threadpool: ThreadPoolExecutor | None = None,
) -> dict[str, Any]:
    """Convert the columns of an Arrow table to tensors.

    Args:
        batch: The table.
        dtypes: The type of all tensors, or a dict of types by column.
        combine_chunks: Return one tensor per column, instead of a list with a tensor for each of its chunks.
        pin_memory: Put the tensors into pinned memory.
        threadpool: Converts columns and chunks in parallel.
    """
    parts: list[tuple[str, pa.Table]] = []
    for name in batch.column_names:
        column = batch.column(name)
        chunks = [column] if combine_chunks else column.chunks
        parts += [(name, pa.table({name: chunk})) for chunk in chunks]

    def convert(part: tuple[str, pa.Table]) -> Any:
        name, table = part
        values = batches.to_batch(table, "numpy")[name]
        return convert_ndarray_to_torch_tensor(values, _of_column(dtypes, name), pin_memory=pin_memory)

    apply: Callable[..., Iterable[Any]] = map if threadpool is None else threadpool.map
    tensors = list(apply(convert, parts))
    if combine_chunks:
        return {name: tensor for (name, _), tensor in zip(parts, tensors, strict=True)}
    chunked: dict[str, Any] = {name: [] for name in batch.column_names}
    for (name, _), tensor in zip(parts, tensors, strict=True):
        chunked[name].append(tensor)
    return chunked


def pin_tensors_to_memory(batch: Any) -> Any:
    """Copy the tensors of a nested structure that are on the CPU into pinned memory; keep everything else."""
    return torch_tensors.pin(batch)


def concat_tensors_to_device(
    tensor_sequence: Sequence[Any], device: Any = None, non_blocking: bool = True
) -> Any:
    """Concatenate tensors along their first dimension, on a device.

    Args:
        tensor_sequence: The tensors, of one type and with the same further dimensions.
        device: The device of the result; that of the tensors by default.
        non_blocking: Do not wait for copies to a GPU.
    """
    torch = load("torch", "torch_utils")
    if not tensor_sequence or not all(isinstance(each, torch.Tensor) for each in tensor_sequence):
        raise ValueError(f"concat_tensors_to_device needs tensors, got {_described(tensor_sequence)}")
    moved = [
        each if device is None else each.to(device, non_blocking=non_blocking) for each in tensor_sequence
    ]
    return moved[0] if len(moved) == 1 else torch.cat(moved)


def move_tensors_to_device(
    batch: Any, device: Any = None, non_blocking: bool = True, concat: bool = True
) -> Any:
    """Move the tensors of a batch to a device.

    Args:
        batch: A tensor; a list or dict of tensors; or a list or dict of lists of tensors, the chunks of columns.
        device: The device; None returns the batch unchanged.
        non_blocking: Do not wait for copies to a GPU.
        concat: Concatenate the chunks of each column.

    Raises:
        ValueError: The batch has another structure.
    """
    if device is None:
        return batch
    torch = load("torch", "torch_utils")
    columns = batch.values() if isinstance(batch, Mapping) else batch
    is_batch = isinstance(batch, torch.Tensor) or (
        isinstance(batch, (list, tuple, Mapping))
        and (
            all(isinstance(each, torch.Tensor) for each in columns)
            or all(
                isinstance(each, (list, tuple)) and all(isinstance(part, torch.Tensor) for part in each)
                for each in columns
            )
        )
    )
    if not is_batch:
        raise ValueError(
            f"Invalid input type: {_described(batch)}. Pass a tensor, a list or dict of tensors, or a list or dict "
            "of lists of tensors"
        )
    moved = torch_tensors.map_tensors(batch, lambda each: each.to(device, non_blocking=non_blocking))
    return torch_tensors.join_chunks(moved) if concat else moved


def _of_column(dtypes: Any, name: str) -> Any:
    return dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes


def _described(batch: Any) -> str:
    """Return the type of a batch and of its values, as text.

    >>> _described([1, "a"])
    'list of int, str'
    """
    values = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(values, Iterable) or isinstance(batch, (str, bytes, np.ndarray)):
        return type(batch).__name__
    kinds = sorted({type(each).__name__ for each in values})
    return f"{type(batch).__name__} of {', '.join(kinds) or 'nothing'}"
