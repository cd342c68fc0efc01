"""Shared memory as a process sees it: writing segments, and mapping those of others."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

from skate._base.serialization import Serialized
from skate._engine.local.interrupts import critical


class Mapping(mmap.mmap):
    """A view of an object's segment; says when the last array on it is gone."""

    size_used: int
    located: Any  # where the node said it lies
    reference: Any  # keeps the object held while arrays lie on it
    on_gone: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        if self.on_gone is not None:
            self.on_gone(self.located)


class SegmentFiles:
    """Opens and remembers segments in the session's shared-memory folder.

    Segments that this process wrote stay mapped after the object is gone, until the node says
    otherwise: the next object of that size then finds warm pages.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._mine: dict[str, mmap.mmap] = {}

    def write(self, segment: str, size: int, value: Serialized, *, reused: bool) -> None:
        """Write a value to a segment, mapping it first if this process has not."""
        memory = self._mine.get(segment) if reused else None
        if memory is None:
            memory = self._create(segment, size)
            self._mine[segment] = memory
        with memoryview(memory) as view:
            value.write_into(view)

    def _create(self, segment: str, size: int) -> mmap.mmap:
        descriptor = os.open(os.path.join(self._folder, segment), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Reserve the pages now: a full /dev/shm is an error here, not a SIGBUS in the copy.
            os.posix_fallocate(descriptor, 0, size)
            return mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def map(self, segment: str, size: int) -> Mapping:
        """Map a segment of any process for reading.

        The pages are shared until somebody writes to them, which read-only arrays forbid but a tensor
        cannot: the writer then gets a copy of its own, and nobody else sees it.
        """
        descriptor = os.open(os.path.join(self._folder, segment), os.O_RDONLY)
        try:
            return Mapping(descriptor, size, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)

    def drop(self, segments: list[str]) -> None:
        """Unmap segments that the node has deleted."""
        for segment in segments:
            memory = self._mine.pop(segment, None)
            if memory is not None:
                memory.close()

    def close(self) -> None:
        """Unmap everything that this process wrote."""
        self.drop(list(self._mine))


critical(Mapping.__del__)
