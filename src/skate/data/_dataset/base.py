"""The base of all method classes of `Dataset`: its plan, settings and executions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from skate.data._arguments import checked
from skate.data._exec.items import Item
from skate.data._execution import Execution
from skate.data._plan import nodes
from skate.data.context import DataContext

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

Self = TypeVar("Self", bound="PlanHolder")


class PlanHolder:
    """A plan and its settings. Nothing runs before rows are requested."""

    def __init__(self, node: nodes.Node, context: DataContext | None = None) -> None:
        self._node = node
        self._context = (context or DataContext.get_current()).copy()
        self._name: str | None = None
        self._schema: pa.Schema | None = None
        self._last: Execution | None = None  # the latest execution, for statistics
        self._runs = 0

    @property
    def context(self) -> DataContext:
        """The settings of this dataset, copied when it was created."""
        return self._context

    @property
    def name(self) -> str | None:
        """The name of the dataset in progress tables and statistics."""
        return self._name

    @checked()
    def set_name(self, name: str | None) -> None:
        """Set the name of the dataset in progress tables and statistics."""
        self._name = name

    def _with_node(self, node: nodes.Node) -> Dataset:
        """Return the dataset of a plan with one more operation."""
        from skate.data.dataset import Dataset

        made = Dataset(node, self._context)
        made._name = self._name
        return made

    def _run(self, node: nodes.Node | None = None) -> Execution:
        """Return an execution of the plan, which begins with the iteration."""
        self._last = Execution(self._node if node is None else node, self._context, self._name, self._runs)
        self._runs += 1
        return self._last

    def _tables(self, node: nodes.Node | None = None) -> Iterator[pa.Table]:
        """Yield the blocks of an execution."""
        return self._run(node).tables()

    def _items(self) -> Iterator[Item]:
        return iter(self._run())

    def _run_numbered(self, number: int, seed: int) -> Execution:
        """Return the execution with this number, which is repeatable for the same seed."""
        self._last = Execution(self._node, self._context, self._name, number, seed)
        return self._last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
