"""CUDA graphs of decode steps, recorded when a number of sequences first occurs."""

from __future__ import annotations

import bisect
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Inputs = np.ndarray[Any, np.dtype[np.int32]]
Outputs = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A graph, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: torch.Tensor
    outputs: Outputs


class DecodeGraphs:
    """Replays a function on the GPU: one launch from the host instead of hundreds.

    A graph is recorded for a fixed number of columns, so inputs are padded to one of a few numbers.

    Args:
        function: Takes int32 inputs on the device, one column for each sequence, and returns two tensors.
        padding: Returns a number of input columns that have no effect.
        largest: Most columns.
    """

    def __init__(
        self, function: Callable[[torch.Tensor], Outputs], padding: Callable[[int], Inputs], largest: int
    ) -> None:
        self._function = function
        self._padding = padding
        self._sizes = [size for size in _sizes(largest) if size < largest] + [largest]
        self._recorded: dict[int, _Recorded] = {}
        self._pool: Any = None  # memory that all graphs share

    def run(self, columns: Inputs) -> Outputs:
        """Replay the graph for these inputs. The outputs, with padding, are valid until the next call."""
        count = columns.shape[1]
        size = self._sizes[bisect.bisect_left(self._sizes, count)]
        recorded = self._recorded.get(size)
        if recorded is None:
            recorded = self._recorded[size] = self._record(size)
        padded = self._padding(size)
        padded[:, :count] = columns
        recorded.inputs.copy_(torch.from_numpy(padded).pin_memory(), non_blocking=True)
        recorded.graph.replay()
        return recorded.outputs

    def _record(self, size: int) -> _Recorded:
        inputs = torch.from_numpy(self._padding(size)).cuda()
        self._function(inputs)  # compiles kernels and sets up libraries, which a recording must not do
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile, to load an adapter for example.
        with (
            _no_garbage_collection(),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            outputs = self._function(inputs)
        self._pool = self._pool or graph.pool()
        return _Recorded(graph, inputs, outputs)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector from deleting a graph of an earlier engine, which would end a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _sizes(largest: int) -> list[int]:
    return [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, largest, 64)]
