"""Copying large buffers with several threads, because one core cannot use all the memory bandwidth."""

from __future__ import annotations

import sys
import threading
from typing import Any

from skate._base.processors import cpus

LARGE = 16 << 20  # bytes above which a second thread pays off
MOST = 4  # the largest number of threads for a copy


def copy(target: memoryview, source: memoryview) -> None:
    """Copy the bytes of `source` to the beginning of `target`.

    NumPy releases the GIL while it copies, so that threads can share the work. Programs with buffers of that size
    usually have NumPy loaded; without it, or on one core, this is a plain copy.
    """
    size = source.nbytes
    numpy = sys.modules.get("numpy")
    threads = min(cpus(), MOST) if size >= LARGE and numpy is not None else 1
    if threads == 1 or numpy is None:
        target[:size] = source
        return
    from_ = numpy.frombuffer(source, numpy.uint8)
    to = numpy.frombuffer(target[:size], numpy.uint8)
    step = -(-size // threads)
    parts = [slice(start, start + step) for start in range(0, size, step)]
    helpers = [_start(numpy.copyto, to[part], from_[part]) for part in parts[1:]]
    try:
        numpy.copyto(to[parts[0]], from_[parts[0]])
    finally:
        for helper in helpers:
            helper.join()


def _start(function: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, name="skate-copy")
    thread.start()
    return thread
