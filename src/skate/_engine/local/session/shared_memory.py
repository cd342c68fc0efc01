"""Access to shared memory: writing segments, and mapping those of other processes."""

from __future__ import annotations

import errno
import functools
import mmap
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from skate._engine.common.platform import system
from skate._engine.local.session import segments
from skate._engine.local.session.folders import Session
from skate._engine.local.wire.interrupts import critical

if TYPE_CHECKING:
    from skate._base.serialization import Serialized

M = TypeVar("M", bound=mmap.mmap)


class SegmentMapping(mmap.mmap):
    """A mapping of an object's segment, which reports when the last array on it is gone."""

    size_used: int
    located: Any  # the node's answer to the request for the object
    reference: Any  # holds the object while arrays use it
    on_gone: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        if self.on_gone is not None:
            self.on_gone(self.located)


class SegmentFiles:
    """Creates and maps the segments of a session, which are files in shared memory or on disk.

    Segments that this process wrote stay mapped after the object is gone, until the node deletes them, because the next
    object of that size can reuse their pages.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._mine: dict[str, mmap.mmap] = {}

    def write(self, segment: str, size: int, value: Serialized, *, reused: bool) -> None:
        """Write a value to a segment; map the segment first if necessary.

        Raises:
            OSError: The file system is full, or the process has reached a limit.
        """
        if segments.is_on_disk(segment):  # never reused, so not kept mapped
            with self._create(segment, size) as memory, memoryview(memory) as view:
                value.write_into(view)
            return
        known = self._mine.get(segment) if reused else None
        if known is None:
            known = self._mine[segment] = self._create(segment, size)
        with memoryview(known) as view:
            value.write_into(view)

    def _create(self, segment: str, size: int) -> mmap.mmap:
        descriptor = os.open(self.session.path_of(segment), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Reserve the pages now: a full file system raises here, instead of a SIGBUS during the copy.
            system.reserve(descriptor, size)
            return self._map(mmap.mmap, descriptor, size, private=False)
        finally:
            os.close(descriptor)

    def map(self, segment: str, size: int) -> SegmentMapping:
        """Map a segment of any process for reading.

        The pages are shared until a process writes to them. Read-only arrays forbid that, but tensors do not; the
        writer then gets its own copy.
        """
        descriptor = os.open(self.session.path_of(segment), os.O_RDONLY)
        try:
            return self._map(SegmentMapping, descriptor, size, private=True)
        finally:
            os.close(descriptor)

    def _map(self, kind: type[M], descriptor: int, size: int, *, private: bool) -> M:
        try:
            return map_file(kind, descriptor, size, private=private)
        except OSError as error:
            if error.errno != errno.ENOMEM or not self._unmap_written():
                raise
        return map_file(kind, descriptor, size, private=private)

    def _unmap_written(self) -> bool:
        """Unmap the segments that are kept for reuse: a process has at most 65,530 mappings."""
        # A segment that another thread is writing to is unmapped afterwards.
        kept, self._mine = self._mine, {}
        return bool(kept)

    def drop(self, dropped: list[str]) -> None:
        """Unmap segments that the node has deleted."""
        for segment in dropped:
            memory = self._mine.pop(segment, None)
            if memory is not None:
                memory.close()

    def close(self) -> None:
        """Unmap all segments that this process wrote."""
        self.drop(list(self._mine))


def is_full(error: OSError) -> bool:
    """Return whether an error means that a file system is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_unusable: list[mmap.mmap] = []  # never unmapped, because other mappings may use their addresses now


def map_file(kind: type[M], descriptor: int, size: int, *, private: bool) -> M:
    """Map the first `size` bytes of a file, without a descriptor for the lifetime of the mapping.

    A process has few descriptors, and may have thousands of arrays on shared objects. Before Python 3.13, `mmap.mmap`
    duplicates its descriptor, so the file is mapped over an anonymous mapping, which has none.
    """
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    if sys.version_info >= (3, 13):
        return kind(descriptor, size, flags=flags, trackfd=False)
    length = os.lseek(descriptor, 0, os.SEEK_END)
    if length < size:
        raise ValueError(f"a file of {length} bytes cannot be mapped as {size}")
    memory = kind(-1, size, flags=_ANONYMOUS)
    lay, address_of, last_error = _mmap_function()
    address = address_of(memory)
    if lay(address, size, _READ_WRITE, flags | _MAP_FIXED, descriptor, 0) != address:
        # The kernel may have unmapped the anonymous pages before it failed.
        _unusable.append(memory)
        error = last_error()
        raise OSError(error, os.strerror(error))
    return memory


_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANON
_MAP_FIXED = 0x10


@functools.cache
def _mmap_function() -> tuple[Callable[..., int | None], Callable[[mmap.mmap], int], Callable[[], int]]:
    """Return the C library's mmap, a function for the address of a mapping, and one for the last error."""
    import ctypes  # it takes a while to load

    function = ctypes.PyDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    of_buffer, address_of = ctypes.c_char.from_buffer, ctypes.addressof
    return function, lambda memory: address_of(of_buffer(memory)), ctypes.get_errno


critical(SegmentMapping.__del__)
