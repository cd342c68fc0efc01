"""The memory of processes."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa

from skate.data._exec import meter

MIB = 2**20


def test_memory_that_is_written_to_counts() -> None:
    before = meter.own_memory()
    # Fresh pages: an allocator might return memory that was written to before.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes([1]) * (64 * MIB))
        assert meter.own_memory() - before > 50 * MIB


def test_a_process_that_is_gone_has_no_memory_to_tell_of() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    assert meter.memory_of(ended.pid) is None
    assert meter.memory_of(os.getpid()) is not None


def test_memory_that_arrow_keeps_is_given_back() -> None:
    pool = pa.default_memory_pool()
    pool.release_unused()
    before = meter.own_memory()
    columns = [pa.array(np.arange(MIB) + place).cast(pa.float64()) for place in range(40)]
    assert meter.own_memory() - before > 200 * MIB
    del columns
    meter.release_unused_memory(0)
    assert meter.own_memory() - before < 100 * MIB


def test_who_has_little_keeps_it() -> None:
    values = pa.array(np.arange(MIB)).cast(pa.float64())
    meter.release_unused_memory(1 << 60)
    assert values[-1].as_py() == MIB - 1
