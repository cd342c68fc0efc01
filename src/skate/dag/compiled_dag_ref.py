"""References to results of compiled graphs, each valid for one `get` or one `await`."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from skate.dag.compiled_dag_node import CompiledDAG


class _Result:
    """Shared implementation: one output of one execution, which can be retrieved once."""

    def __init__(self, dag: CompiledDAG, execution_index: int, channel_index: int | None = None) -> None:
        self._dag = dag
        self._execution_index = execution_index
        self._channel_index = channel_index
        self._asked = False

    @property
    def _output(self) -> int:
        return self._channel_index or 0

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}({self._dag.get_id()}, execution_index={self._execution_index}, "
            f"channel_index={self._channel_index})"
        )

    __repr__ = __str__

    def __copy__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be copied.")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be deep copied.")

    def __reduce__(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} cannot be pickled.")

    def __del__(self) -> None:
        dag = getattr(self, "_dag", None)  # absent when the constructor raised
        if dag is not None and not self._asked:
            dag._abandon(self._execution_index, self._output)


class CompiledDAGRef(_Result):
    """A reference to an output of one execution of a compiled graph.

    `skate.get(ref)` returns the value, once. Dropping the reference releases the value.
    """

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the value.

        Args:
            timeout: Seconds to wait; None uses the `get_timeout` of `DAGContext`, -1 waits forever.

        Raises:
            RayChannelTimeoutError: The value is not available in time. The call can be repeated.
            ValueError: The value was already retrieved.
        """
        if self._asked:
            raise ValueError(
                f"The value of {self} was retrieved before, and a compiled graph keeps no values: get() it once, and "
                "keep the result."
            )
        return self._dag._get(self, timeout)


class CompiledDAGFuture(_Result):
    """A future for an output of one execution of a compiled graph; `await` returns the value, once."""

    def __await__(self) -> Generator[Any, None, Any]:
        if self._asked:
            raise ValueError(
                f"{self} was awaited before, and a compiled graph keeps no values: await it once, and keep the result."
            )
        return self._dag._get_async(self).__await__()


def get_compiled(references: Any, timeout: float | None = None) -> Any:
    """Implement `skate.get` for a `CompiledDAGRef` or a list of them.

    Raises:
        ValueError: The list contains other objects.
    """
    if isinstance(references, CompiledDAGRef):
        return references.get(timeout)
    if not all(isinstance(reference, CompiledDAGRef) for reference in references):
        raise ValueError(
            "get() got a list that mixes references of a compiled graph (CompiledDAGRef) with other values: get() each "
            "kind by itself."
        )
    return [reference.get(timeout) for reference in references]
