"""CUDA graphs of steps: one for each shape of inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

Inputs = np.ndarray[Any, np.dtype[np.int32]]
Outputs = tuple[torch.Tensor, torch.Tensor]
Shape = TypeVar("Shape", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A graph, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: torch.Tensor
    outputs: Outputs


class StepGraphs(Generic[Shape]):
    """Replays a function on the GPU: one launch from the host instead of hundreds.

    A graph is recorded by `prepare`, or when a shape occurs for the second time. The first inputs of a shape are
    computed without a graph, because that compiles kernels and sets up libraries, which a recording must not do.

    Args:
        function: Takes a shape, and inputs of that shape on the device, and returns two tensors.
    """

    def __init__(self, function: Callable[[Shape, torch.Tensor], Outputs]) -> None:
        self._function = function
        self._seen: set[Shape] = set()
        self._recorded: dict[Shape, _Recorded] = {}
        self._pool: Any = None  # memory that all graphs share, since they are recorded on the same stream
        self._stream: torch.cuda.Stream | None = None

    def run(self, shape: Shape, inputs: Inputs) -> Outputs:
        """Compute the function. The outputs are valid until the next call."""
        sent = torch.from_numpy(inputs).pin_memory()
        if shape not in self._seen:
            self._seen.add(shape)
            return self._function(shape, sent.to("cuda", non_blocking=True))
        recorded = self._recorded.get(shape)
        if recorded is None:
            recorded = self._recorded[shape] = self._record(shape, torch.empty_like(sent, device="cuda"))
        recorded.inputs.copy_(sent, non_blocking=True)
        recorded.graph.replay()
        return recorded.outputs

    def prepare(self, shape: Shape, inputs: Inputs) -> None:
        """Record the graph of a shape, if there is none yet.

        Args:
            inputs: Inputs of the shape that have no effect.
        """
        for _ in range(2):
            if shape not in self._recorded:
                self.run(shape, inputs)

    def _record(self, shape: Shape, inputs: torch.Tensor) -> _Recorded:
        graph = torch.cuda.CUDAGraph()
        stream = self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        # `torch.cuda.graph` does the same after it has freed the memory that the next steps need. Other threads may
        # use the GPU meanwhile, to load an adapter for example.
        with _no_garbage_collection(), torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = self._function(shape, inputs)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        self._pool = self._pool or graph.pool()
        return _Recorded(graph, inputs, outputs)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector from deleting a graph of an earlier engine, which would abort a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
