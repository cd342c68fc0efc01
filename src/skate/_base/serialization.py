r"""Turning values into bytes and back: pickle protocol 5, with large buffers kept out of band.

A payload is either a plain pickle stream, or (when there are out-of-band buffers) a header, the
stream, and the buffers, each aligned so that vector instructions like them:

    b"\x01" pad[3] | u32 count | u64 stream size | u64 size of each buffer … | stream | buffer | …

When a value holds many references, a list of them comes before that, so that the reader makes them all at once:

    b"\x02" pad[3] | u32 count | id | id | … | payload as above, aligned

Readers of shared memory hand the mapped pages to `loads`, and the arrays they get back lie there.
"""

from __future__ import annotations

import gc
import io
import pickle
import struct
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from skate._base import ids
from skate._base.cell_sources import reduce_code
from skate._base.copying import copy
from skate._base.object_ref import ObjectRef, next_reference, revive_many
from skate._base.reducers import REDUCERS

ALIGNMENT = 64
MANY = 16  # references in one value from which on they are listed
_MARK = b"\x01\0\0\0"
_COUNT = struct.Struct("<4sIQ")
_LIST_MARK = b"\x02\0\0\0"
_LIST = struct.Struct("<4sI")
_ID = struct.Struct(f"{ids.OBJECT_SIZE}s")
PLAIN = frozenset((int, float, bool, str, bytes, type(None)))  # of which nothing has to be asked
NO_ARGUMENTS = pickle.dumps(((), None), 5)
_PROTO_BYTE = pickle.dumps(None, 5)[0]

Buffer = bytes | bytearray | memoryview


class _Context(threading.local):
    """What the pickling under way in this thread collects, or None outside of Skate."""

    collected: list[Any] | None = None


context = _Context()


REDUCERS[CodeType] = reduce_code


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles by value what the receiver could not import, and keeps CPU tensors out of band."""

    listed: list[bytes] | None = None  # ids of references that are kept out of the stream

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is ObjectRef:
            return self._reduce_reference(obj)
        registered = REDUCERS.get(kind)
        if registered is not None:
            return registered(obj)
        if kind.__module__.startswith("torch"):
            if isinstance(obj, ModuleType) and sys.modules.get(obj.__name__) is obj:
                # `torch.ops`: cloudpickle adds it to every function that refers to torch and to an attribute `ops`.
                return import_module, (obj.__name__,)
            reduced = _reduce_tensor(obj)
            if reduced is not None:
                return reduced
        return super().reducer_override(obj)

    def _reduce_reference(self, reference: ObjectRef[Any]) -> Any:
        if self.listed is None or not context.collected or len(context.collected) < MANY:
            return NotImplemented  # a few are better off in the stream
        if reference._engine is not None:
            reference._engine.reference_pickled(reference)
        self.listed.append(reference._id)
        return next_reference, ()


class _Unpickler(pickle.Unpickler):
    """Reads a stream whose references are listed elsewhere."""

    def __init__(self, stream: Buffer, buffers: Sequence[Any], references: list[Any]) -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._next_reference = iter(references).__next__

    def find_class(self, module: str, name: str) -> Any:
        if name == "next_reference" and module == next_reference.__module__:
            return self._next_reference
        return super().find_class(module, name)


class Serialized:
    """A value as a pickle stream, its out-of-band buffers and the references inside it."""

    __slots__ = ("_list", "_views", "references", "size", "stream")

    def __init__(
        self, stream: bytes, views: list[memoryview], references: list[Any], listed: Sequence[bytes] = ()
    ) -> None:
        self.stream = stream
        self.references = references
        self._views = views
        self._list = b""
        if views:
            size = _aligned(_COUNT.size + 8 * len(views) + len(stream))
            for view in views:
                size = _aligned(size + view.nbytes)
            self.size = size
        else:
            self.size = len(stream)
        if listed:
            found = _LIST.pack(_LIST_MARK, len(listed)) + b"".join(listed)
            self._list = found.ljust(_aligned(len(found)), b"\0")
            self.size += len(self._list)

    def to_bytes(self) -> bytes:
        """Return the whole payload as one byte string."""
        if not self._views:
            return self._list + self.stream if self._list else self.stream
        target = bytearray(self.size)
        self.write_into(memoryview(target))
        return bytes(target)

    def write_into(self, target: memoryview) -> None:
        """Write the payload to `target`, which has at least `size` bytes."""
        if self._list:
            target[: len(self._list)] = self._list
            target = target[len(self._list) :]
        if not self._views:
            target[: len(self.stream)] = self.stream
            return
        views = self._views
        head = _COUNT.pack(_MARK, len(views), len(self.stream))
        head += b"".join(view.nbytes.to_bytes(8, "little") for view in views) + self.stream
        target[: len(head)] = head
        position = _aligned(len(head))
        for view in views:
            copy(target[position:], view)
            position = _aligned(position + view.nbytes)


def serialize(value: Any) -> Serialized:
    """Serialize any value; raises TypeError or PicklingError when a part of it cannot be."""
    if type(value) in PLAIN:
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
            pickler = Pickler(file, protocol=5, buffer_callback=keep)
            pickler.listed = []
            pickler.dump(value)
            stream = file.getvalue()
    finally:
        context.collected = previous
    return Serialized(stream, views, references, pickler.listed)


def dumps(value: Any) -> bytes:
    """Return `value` as one byte string."""
    if type(value) in PLAIN:
        return pickle.dumps(value, 5)
    return serialize(value).to_bytes()


def dumps_plain_call(args: Sequence[Any], kwargs: dict[str, Any]) -> bytes | None:
    """Return the arguments of a call as one byte string if they are a few plain values, else None."""
    if kwargs:
        return None
    if not args:
        return NO_ARGUMENTS
    for arg in args:
        if type(arg) not in PLAIN:
            return None
    return pickle.dumps((args, None), 5)


def dumps_call(args: Sequence[Any], kwargs: dict[str, Any]) -> Serialized:
    """Serialize the arguments of a call; the common case of a few plain values takes a short cut."""
    plain = dumps_plain_call(args, kwargs)
    return serialize((args, kwargs or None)) if plain is None else Serialized(plain, [], [])


def loads(data: Buffer) -> Any:
    """Return the value of a payload; arrays in it are read-only views of `data`."""
    if data[0] == _PROTO_BYTE:
        return pickle.loads(data)
    if data[0] == _LIST_MARK[0]:
        return _loads_with_list(data)
    stream, buffers = _split(data)
    return pickle.loads(stream, buffers=buffers)


def _loads_with_list(data: Buffer) -> Any:
    _, count = _LIST.unpack_from(data)
    end = _LIST.size + _ID.size * count
    rest = data[_aligned(end) :]
    stream, buffers = (rest, ()) if rest[0] == _PROTO_BYTE else _split(rest)
    collects = gc.isenabled()
    gc.disable()  # otherwise it repeatedly searches the new references for garbage
    try:
        references = revive_many([id for (id,) in _ID.iter_unpack(data[_LIST.size : end])])
        return _Unpickler(stream, buffers, references).load()
    finally:
        if collects:
            gc.enable()


def _split(data: Buffer) -> tuple[Buffer, Sequence[memoryview]]:
    """Return the stream of a payload, and its buffers, all of them read-only."""
    _, count, stream_size = _COUNT.unpack_from(data)
    sizes = struct.unpack_from(f"<{count}Q", data, _COUNT.size)
    view = memoryview(_align(data) if type(data) is bytes else data).toreadonly()
    start = _COUNT.size + 8 * count
    position = _aligned(start + stream_size)
    buffers = []
    for size in sizes:
        buffers.append(view[position : position + size])
        position = _aligned(position + size)
    return view[start : start + stream_size], buffers


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
    # torch calls a single element contiguous whatever its stride (0 after `expand`), and views bytes at stride 1 only.
    line = flat.as_strided((flat.numel(),), (1,))
    data = pickle.PickleBuffer(line.view(torch.uint8).numpy() if flat.numel() else b"")
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
