"""Lazy access to torch, and checks of its backends."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from skate.util.collective.types import Backend

__all__ = ["check_backend", "gloo_available", "load_torch", "nccl_available", "tensor_of"]


def load_torch() -> Any:
    """Return the torch module.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        raise ImportError("skate.util.collective needs torch: pip install 'skate[train]'") from error
    return torch


def gloo_available() -> bool:
    """Return whether the backend for CPU tensors can be used in this process."""
    if importlib.util.find_spec("torch") is None:
        return False
    distributed = load_torch().distributed
    return bool(distributed.is_available() and distributed.is_gloo_available())


def nccl_available() -> bool:
    """Return whether the backend for CUDA tensors can be used in this process."""
    if importlib.util.find_spec("torch") is None:
        return False
    torch = load_torch()
    distributed = torch.distributed
    built_in = distributed.is_available() and distributed.is_nccl_available()
    return bool(built_in and torch.cuda.is_available())


def check_backend(backend: Backend) -> None:
    """Raise an error with the reason if `backend` cannot be used in this process."""
    torch = load_torch()
    if backend == Backend.GLOO and not gloo_available():
        raise RuntimeError("The GLOO backend is not part of this build of torch.")
    if backend == Backend.NCCL and not nccl_available():
        why = "finds no GPU" if torch.distributed.is_nccl_available() else "was built without NCCL"
        raise RuntimeError(
            f"The NCCL backend needs CUDA, but torch {torch.__version__} {why}. "
            "Pass backend='gloo' for CPU tensors and arrays; for NCCL, start the actor with num_gpus=1."
        )


@contextlib.contextmanager
def tensor_of(value: Any, backend: str, *, written: bool) -> Iterator[Any]:
    """Yield a contiguous tensor that shares the memory of `value`, or whose result is copied back to it.

    Args:
        value: A tensor or a NumPy array.
        backend: The backend, which determines the kind of device.
        written: Whether the operation writes to it.
    """
    torch = load_torch()
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
    elif type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
        tensor = _tensor_of_array(torch, value, written)
    else:
        raise TypeError(
            f"Collective operations take torch tensors and NumPy arrays, got {type(value).__qualname__}."
        )
    wanted = "cuda" if backend == Backend.NCCL else "cpu"
    if tensor.device.type != wanted:
        raise ValueError(
            f"The {backend} backend works on {wanted} tensors; this one is on {tensor.device}. "
            f"Move it with tensor.to({wanted!r})."
        )
    if tensor.is_contiguous():
        yield tensor
        return
    packed = tensor.contiguous()
    yield packed
    if written:
        tensor.copy_(packed)


def _tensor_of_array(torch: Any, array: Any, written: bool) -> Any:
    if not array.flags.writeable:
        if written:
            raise ValueError(
                "The array is read-only, like all arrays from the object store, but a collective operation "
                "writes its result to it. Pass a copy: array.copy()."
            )
        array = array.copy()  # torch warns about tensors on read-only memory
    if any(stride < 0 for stride in array.strides):
        if written:
            raise ValueError("The array has negative strides; pass a copy: array.copy().")
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise TypeError(f"torch has no equivalent of arrays of dtype {array.dtype}.") from error
