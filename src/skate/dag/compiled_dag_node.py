"""Compiled graphs of actor calls: validated once, executed many times.

On one machine a compiled graph is a prepared sequence of actor calls that pass references to each other, so values
move between actors without passing through the caller.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

import skate
from skate.dag._inflight import InflightExecutions
from skate.dag._plan import Plan
from skate.dag._transport import call_with_tensors_moved, move_tensors
from skate.dag.class_node import ClassMethodNode, ClassMethodOutputNode
from skate.dag.compiled_dag_ref import CompiledDAGFuture, CompiledDAGRef
from skate.dag.context import DAGContext
from skate.dag.input_node import InputAttributeNode
from skate.exceptions import GetTimeoutError, RayChannelError, RayChannelTimeoutError, RayTaskError

if TYPE_CHECKING:
    from collections.abc import Callable

    from skate.dag.compiled_dag_ref import _Result
    from skate.dag.dag_node import DAGNode

# Values up to this size are sent with each call; larger ones are stored once.
_SMALL_SIZE = 10_000


class CompiledDAG:
    """A graph compiled by `DAGNode.experimental_compile`.

    Args:
        root: The last node of the graph.
        enable_asyncio: Whether the graph is run with `execute_async`.
        submit_timeout: Seconds that `execute` waits for a free slot.
        max_inflight_executions: Maximum number of executions in flight.
        max_buffered_results: Maximum number of executions with buffered results.
    """

    def __init__(
        self,
        root: DAGNode,
        *,
        enable_asyncio: bool = False,
        submit_timeout: float | None = None,
        max_inflight_executions: int | None = None,
        max_buffered_results: int | None = None,
    ) -> None:
        context = DAGContext.get_current()
        self._plan = Plan(root)
        self._id = uuid.uuid4().hex
        self._enable_asyncio = enable_asyncio
        self._submit_timeout = context.submit_timeout if submit_timeout is None else submit_timeout
        self._get_timeout = context.get_timeout
        self._inflight = InflightExecutions(
            _first(max_inflight_executions, context.max_inflight_executions),
            _first(max_buffered_results, context.max_buffered_results),
            len(self._plan.outputs),
        )
        self._actors = list({call.actor: None for call in self._plan.calls})
        # Actors have started at this point, so that timeouts do not include their start.
        skate.get([actor.__ray_ready__.remote() for actor in self._actors])
        self._calls = [_prepare_call(call) for call in self._plan.calls]
        self._shared = {node for node in self._input_nodes() if self._plan.readers(node) > 1}
        self._results: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        # Outputs whose references were dropped unused. The garbage collector may run anywhere, even while a lock is
        # held, so it only appends to this list.
        self._dropped: deque[tuple[int, int]] = deque()
        self._closed = False

    def get_id(self) -> str:
        """Return the id of this compiled graph."""
        return self._id

    @property
    def is_teardown(self) -> bool:
        """Whether `teardown` was called."""
        return self._closed

    # ------------------------------------------------------------ execution

    def execute(self, *args: Any, **kwargs: Any) -> CompiledDAGRef | list[CompiledDAGRef]:
        """Start an execution of the graph.

        Args:
            *args: The values of the graph's `InputNode`.
            **kwargs: Named values of the graph's `InputNode`.

        Returns:
            A reference to the result; a list of them for a `MultiOutputNode`.

        Raises:
            RayCgraphCapacityExceeded: Too many executions are in flight.
            RayChannelError: `teardown` was called.
        """
        if self._enable_asyncio:
            raise ValueError("Use execute_async if enable_asyncio=True")
        with self._lock:
            self._check_open()
            self._plan.check_inputs(args, kwargs)
            self._free_abandoned()
            result: CompiledDAGRef | list[CompiledDAGRef] = self._start(args, kwargs, CompiledDAGRef)
        return result

    async def execute_async(self, *args: Any, **kwargs: Any) -> CompiledDAGFuture | list[CompiledDAGFuture]:
        """Start an execution of the graph, like `execute`, with awaitable results."""
        if not self._enable_asyncio:
            raise ValueError("Use execute if enable_asyncio=False")
        self._check_open()
        self._plan.check_inputs(args, kwargs)
        await self._free_abandoned_async()
        with self._lock:
            result: CompiledDAGFuture | list[CompiledDAGFuture] = self._start(args, kwargs, CompiledDAGFuture)
        return result

    def teardown(self, kill_actors: bool = False) -> None:
        """Shut the graph down; its actors remain usable.

        Args:
            kill_actors: Whether to kill the actors as well.
        """
        with self._lock:
            self._closed = True
            self._results.clear()
        if kill_actors:
            for actor in self._actors:
                skate.kill(actor)

    def visualize(
        self,
        filename: str = "compiled_graph",
        format: str = "png",
        view: bool = False,
        channel_details: bool = False,
    ) -> str:
        """Draw the graph.

        Args:
            filename: The file to write, without its extension.
            format: "ascii" writes no file; "dot" writes the source; others need the `graphviz` package.
            view: Whether to open the drawing.
            channel_details: Accepted as in Ray; all edges are shared memory.

        Returns:
            The drawing as text: in the DOT language, or readable text for "ascii".
        """
        from skate.dag._visualization import draw_compiled

        return draw_compiled(self._plan, filename, format, view)

    def _input_nodes(self) -> list[DAGNode]:
        return [self._plan.input, *self._plan.attributes]

    def _check_open(self) -> None:
        if self._closed:
            raise RayChannelError("Channel closed.")

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any], kind: type[Any]) -> Any:
        self._inflight.check_room()
        outputs = self._submit(args, kwargs)
        index = self._inflight.submit()
        self._results[index] = outputs
        if not self._plan.is_multi:
            return kind(self, index)
        return [kind(self, index, output) for output in range(len(outputs))]

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        values: dict[DAGNode, Any] = {}
        for node in self._input_nodes():
            if isinstance(node, InputAttributeNode):
                value = args[node.key] if isinstance(node.key, int) else kwargs[node.key]
            elif self._plan.attributes:
                continue
            else:
                value = args[0]
            values[node] = skate.put(value) if node in self._shared and not _is_small(value) else value

        def value_of(node: DAGNode) -> Any:
            if isinstance(node, ClassMethodOutputNode):
                return values[node.class_method_call][node.output_idx]
            return values[node]

        for node, call in zip(self._plan.calls, self._calls, strict=True):
            positional = [template.fill(value_of) for template in node._templates]
            values[node] = call(*positional, **node._bound_kwargs)
        return [value_of(node) for node in self._plan.outputs]

    # ------------------------------------------------------------ results

    def _get(self, reference: CompiledDAGRef, timeout: float | None) -> Any:
        limit = self._get_timeout if timeout is None else timeout
        if limit < 0 and limit != -1:
            raise ValueError(f"Timeout must be non-negative or -1, got {limit}.")
        deadline = None if limit == -1 else time.monotonic() + limit
        index, output = reference._execution_index, reference._output
        with self._lock:
            self._check_open()
            self._inflight.check_fetch(index)
            outputs = self._results[index]
        try:
            values = self._wait_for(outputs, deadline)
        except GetTimeoutError:
            raise RayChannelTimeoutError(
                f"Timed out after {limit} s waiting for {reference}. Retry with a "
                "longer `timeout`, or set `get_timeout` in DAGContext (-1 waits forever)."
            ) from None
        except BaseException:
            self._settle(reference)
            raise
        self._settle(reference)
        return self._move_output(values[output], output)

    @staticmethod
    def _wait_for(references: list[Any], deadline: float | None) -> list[Any]:
        """Return the values of all outputs; raise an error as soon as one of them is an error."""
        if len(references) == 1:
            return [skate.get(references[0], timeout=_remaining(deadline))]
        values: dict[Any, Any] = {}
        waiting = list(dict.fromkeys(references))
        while waiting:
            ready, waiting = skate.wait(waiting, num_returns=1, timeout=_remaining(deadline))
            if not ready:
                raise GetTimeoutError("Get timed out: some object(s) not ready.")
            values.update({reference: skate.get(reference) for reference in ready})
        return [values[reference] for reference in references]

    async def _get_async(self, future: CompiledDAGFuture) -> Any:
        index, output = future._execution_index, future._output
        with self._lock:
            self._check_open()
            self._inflight.check_fetch(index)
            outputs = self._results[index]
        try:
            values = await _gather(outputs)
        finally:
            self._settle(future)
        return self._move_output(values[output], output)

    def _move_output(self, value: Any, output: int) -> Any:
        device = self._plan.outputs[output].type_hint.device
        try:
            return move_tensors(value, device)
        except RuntimeError as error:
            # The device is part of the graph, so a missing device is an error of the graph.
            raise RayTaskError.from_exception("with_tensor_transport", error).as_instanceof_cause() from None

    def _settle(self, reference: _Result) -> None:
        """Record that an output was retrieved, as a value or as an error."""
        reference._asked = True
        with self._lock:
            self._inflight.fetch(reference._execution_index)
            self._inflight.settle(reference._execution_index, reference._output)
            self._release_abandoned()

    def _abandon(self, index: int, output: int) -> None:
        """Record that an output can no longer be requested."""
        self._dropped.append((index, output))

    def _release_abandoned(self) -> None:
        """Release results that can no longer be requested."""
        while self._dropped:
            self._inflight.settle(*self._dropped.popleft())
        for index in [index for index in self._results if self._inflight.is_over(index)]:
            del self._results[index]

    def _free_abandoned(self) -> None:
        """Free slots of finished executions whose results can no longer be requested."""
        deadline = None if self._submit_timeout == -1 else time.monotonic() + self._submit_timeout
        self._release_abandoned()
        while (index := self._inflight.find_abandoned()) is not None:
            outputs = list(dict.fromkeys(self._results[index]))
            if self._inflight.is_full:
                _, late = skate.wait(outputs, num_returns=len(outputs), timeout=_remaining(deadline))
                if late:
                    return
            self._free(index)

    async def _free_abandoned_async(self) -> None:
        with self._lock:
            self._release_abandoned()
        while (index := self._inflight.find_abandoned()) is not None:
            if self._inflight.is_full:
                await _all_done(self._results[index])
            with self._lock:
                self._free(index)

    def _free(self, index: int) -> None:
        self._inflight.fetch(index)
        self._release_abandoned()

    def __str__(self) -> str:
        return f"CompiledDAG({self._id})"

    __repr__ = __str__


def _prepare_call(node: ClassMethodNode) -> Callable[..., Any]:
    """Return a function that makes the call of `node`."""
    devices = {
        position: template.value.type_hint.device
        for position, template in enumerate(node._templates)
        if template.is_node and template.value.type_hint.device != "default"
    }
    if devices:
        call: Callable[..., Any] = node.actor.__ray_call__.remote
        name = node.get_method_name()
        return lambda *args, **kwargs: call(call_with_tensors_moved, name, devices, *args, **kwargs)
    method = getattr(node.actor, node.get_method_name())
    if node.get_options():
        method = method.options(**node.get_options())
    remote: Callable[..., Any] = method.remote
    return remote


async def _gather(references: list[Any]) -> list[Any]:
    """Await all references; raise an error as soon as one of them is an error."""
    import asyncio

    futures = {reference: reference.as_future() for reference in references}
    done, waiting = await asyncio.wait(futures.values(), return_when=asyncio.FIRST_EXCEPTION)
    for future in waiting:
        future.cancel()
    failures = [future for future in done if future.exception() is not None]
    if failures:
        failures[0].result()
    return [futures[reference].result() for reference in references]


async def _all_done(references: list[Any]) -> None:
    import asyncio

    if references:
        await asyncio.gather(*(reference.as_future() for reference in references), return_exceptions=True)


def _is_small(value: Any) -> bool:
    if isinstance(value, (bytes, str)):
        return len(value) <= _SMALL_SIZE
    return value is None or isinstance(value, (bool, float, int))


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _first(given: int | None, default: int) -> int:
    return default if given is None else given
