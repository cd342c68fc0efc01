r"""Turning values into bytes and back: pickle protocol 5, with large buffers kept out of band.

A payload is either a plain pickle stream, or (when there are out-of-band buffers) a header, the
stream, and the buffers, each aligned so that vector instructions like them:

    b"\x01" pad[3] | u32 count | u64 stream size | u64 size of each buffer … | stream | buffer | …

Readers of shared memory hand the mapped pages to `loads`, and the arrays they get back lie there.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import cloudpickle

from skate._base.reducers import REDUCERS

ALIGNMENT = 64
_MARK = b"\x01\0\0\0"
_COUNT = struct.Struct("<4sIQ")
_PLAIN = frozenset((int, float, bool, str, bytes, type(None)))
_PROTO_BYTE = pickle.dumps(None, 5)[0]

Buffer = bytes | bytearray | memoryview


class Collector(Protocol):
    """Is told of every reference met while pickling."""

    def __call__(self, reference: Any) -> None: ...


class _Context(threading.local):
    """What the pickling under way in this thread collects, or None outside of Skate."""

    collected: list[Any] | None = None


context = _Context()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles by value what the receiver could not import, and keeps CPU tensors out of band."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        registered = REDUCERS.get(kind)
        if registered is not None:
            return registered(obj)
        if kind.__module__.startswith("torch"):
            reduced = _reduce_tensor(obj)
            if reduced is not None:
                return reduced
        return super().reducer_override(obj)


class Serialized:
    """A value as a pickle stream, its out-of-band buffers and the references inside it."""

    __slots__ = ("_views", "references", "size", "stream")

    def __init__(self, stream: bytes, views: list[memoryview], references: list[Any]) -> None:
        self.stream = stream
        self.references = references
        self._views = views
        if views:
            size = _aligned(_COUNT.size + 8 * len(views) + len(stream))
            for view in views:
                size = _aligned(size + view.nbytes)
            self.size = size
        else:
            self.size = len(stream)

    def to_bytes(self) -> bytes:
        """Return the whole payload as one byte string."""
        if not self._views:
            return self.stream
        target = bytearray(self.size)
        self.write_into(memoryview(target))
        return bytes(target)

    def write_into(self, target: memoryview) -> None:
        """Write the payload to `target`, which has at least `size` bytes."""
        if not self._views:
            target[: len(self.stream)] = self.stream
            return
        views = self._views
        head = _COUNT.pack(_MARK, len(views), len(self.stream))
        head += b"".join(view.nbytes.to_bytes(8, "little") for view in views) + self.stream
        target[: len(head)] = head
        position = _aligned(len(head))
        for view in views:
            target[position : position + view.nbytes] = view
            position = _aligned(position + view.nbytes)


def serialize(value: Any) -> Serialized:
    """Serialize any value; raises TypeError or PicklingError when a part of it cannot be."""
    if type(value) in _PLAIN:
        return Serialized(pickle.dumps(value, 5), [], [])
    previous = context.collected
    references: list[Any] = []
    context.collected = references
    views: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            views.append(buffer.raw())
        except BufferError:  # not contiguous: let pickle copy it into the stream
            return True
        return False

    try:
        with io.BytesIO() as file:
            Pickler(file, protocol=5, buffer_callback=keep).dump(value)
            stream = file.getvalue()
    finally:
        context.collected = previous
    return Serialized(stream, views, references)


def dumps(value: Any) -> bytes:
    """Return `value` as one byte string."""
    return serialize(value).to_bytes()


def dumps_call(args: Sequence[Any], kwargs: dict[str, Any]) -> Serialized:
    """Serialize the arguments of a call; the common case of a few plain values takes a short cut."""
    if not kwargs:
        for arg in args:
            if type(arg) not in _PLAIN:
                break
        else:
            return Serialized(pickle.dumps((args, None), 5), [], [])
    return serialize((args, kwargs or None))


def loads(data: Buffer) -> Any:
    """Return the value of a payload; arrays in it are read-only views of `data`."""
    if data[0] == _PROTO_BYTE:
        return pickle.loads(data)
    _, count, stream_size = _COUNT.unpack_from(data)
    sizes = struct.unpack_from(f"<{count}Q", data, _COUNT.size)
    view = memoryview(_align(data) if type(data) is bytes else data).toreadonly()
    start = _COUNT.size + 8 * count
    position = _aligned(start + stream_size)
    buffers = []
    for size in sizes:
        buffers.append(view[position : position + size])
        position = _aligned(position + size)
    return pickle.loads(view[start : start + stream_size], buffers=buffers)


def _align(data: bytes) -> Buffer:
    """Return small payloads at an aligned address, as those in shared memory are."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return data
    room = numpy.empty(len(data) + ALIGNMENT, numpy.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    view = memoryview(room)[start : start + len(data)]
    view[:] = data
    return view


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _reduce_tensor(obj: Any) -> Any:
    """Reduce a dense CPU tensor to its bytes; None leaves it to torch's own pickling."""
    torch = sys.modules.get("torch")
    if torch is None or type(obj) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if obj.device.type != "cpu" or obj.layout is not torch.strided or obj.is_quantized:
        return None
    if obj.grad_fn is not None or obj.is_conj() or obj.is_neg():
        return None  # torch raises its own, clear error for non-leaf tensors
    flat = obj.detach().contiguous()
    data = pickle.PickleBuffer(flat.reshape(-1).view(torch.uint8).numpy() if flat.numel() else b"")
    parameter = type(obj) is torch.nn.Parameter
    return _tensor, (data, str(obj.dtype), tuple(obj.shape), obj.requires_grad, parameter)


def _tensor(data: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool, parameter: bool) -> Any:
    """Rebuild a tensor on top of `data` without copying it."""
    import warnings

    import torch

    kind = getattr(torch, dtype.removeprefix("torch."))
    if memoryview(data).nbytes == 0:
        tensor = torch.empty(shape, dtype=kind)
    else:
        with warnings.catch_warnings():
            # torch warns that the buffer is read-only; that is the point of shared objects.
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch.frombuffer(data, dtype=kind).reshape(shape)
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor
