"""Transport of tensors between the steps of a graph."""

from __future__ import annotations

from typing import Any

_TRANSPORTS = ("auto", "nccl", "shm", "accelerator")
_DEVICES = ("default", "cpu", "gpu", "cuda")


class TensorTransport:
    """The transport of the output of a node; created by `with_tensor_transport`.

    On one machine all transports use shared memory, so only the device has an effect.

    Args:
        transport: "auto", "shm", "nccl", "accelerator" or a communicator.
        device: "default" keeps tensors on their device, "cpu" and "cuda" move them.
    """

    __slots__ = ("device", "static_shape", "transport")

    def __init__(self, transport: Any = "auto", device: str = "default", static_shape: bool = False) -> None:
        if transport is None or (isinstance(transport, str) and transport not in _TRANSPORTS):
            raise ValueError(
                f"Unknown tensor transport {transport!r}: pass one of {', '.join(map(repr, _TRANSPORTS))}, or a "
                "Communicator."
            )
        if device not in _DEVICES:
            raise ValueError(f"Invalid device {device!r}: pass one of {', '.join(map(repr, _DEVICES))}.")
        self.transport = transport
        self.device = "cuda" if device == "gpu" else device
        self.static_shape = static_shape


def move_tensors(value: Any, device: str) -> Any:
    """Move the tensors in `value`, including those in lists, tuples and dictionaries, to `device`.

    Raises:
        RuntimeError: The device is "cuda", and CUDA is not available.
    """
    if device == "default":
        return value
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("No CUDA GPUs are available")
    return _move(value, device, torch.Tensor)


def _move(value: Any, device: str, tensor: type) -> Any:
    if isinstance(value, tensor):
        return value.to(device)  # type: ignore[attr-defined]
    if type(value) is dict:
        return {key: _move(item, device, tensor) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_move(item, device, tensor) for item in value)
    return value


def call_with_tensors_moved(
    actor: Any, method: str, devices: dict[int, str], *args: Any, **kwargs: Any
) -> Any:
    """Call a method of an actor, in its process, after moving tensors to their devices.

    Args:
        actor: The instance.
        method: Name of the method.
        devices: Device per positional argument, where one is set.
    """
    arranged = [move_tensors(value, devices.get(index, "default")) for index, value in enumerate(args)]
    return getattr(actor, method)(*arranged, **kwargs)
