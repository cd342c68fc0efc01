"""What every part of a dataset's API stands on: its plan, its settings, and how it is run."""

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
    """A plan, and the settings that it runs with. Nothing is done before somebody wants rows."""

    def __init__(self, node: nodes.Node, context: DataContext | None = None) -> None:
        self._node = node
        self._context = (context or DataContext.get_current()).copy()
        self._name: str | None = None
        self._schema: pa.Schema | None = None
        self._last: Execution | None = None  # the latest run, for statistics
        self._runs = 0

    @property
    def context(self) -> DataContext:
        """The settings of this dataset, which it took along when it was made."""
        return self._context

    @property
    def name(self) -> str | None:
        """What the dataset is called in progress lines and statistics."""
        return self._name

    @checked()
    def set_name(self, name: str | None) -> None:
        """Give the dataset a name, which progress lines and statistics show."""
        self._name = name

    def _then(self, node: nodes.Node) -> Dataset:
        """Return the dataset that one more operation makes."""
        from skate.data.dataset import Dataset

        made = Dataset(node, self._context)
        made._name = self._name
        return made

    def _run(self, node: nodes.Node | None = None) -> Execution:
        """Return a run of the plan, which begins when somebody iterates over it."""
        self._last = Execution(self._node if node is None else node, self._context, self._name, self._runs)
        self._runs += 1
        return self._last

    def _tables(self, node: nodes.Node | None = None) -> Iterator[pa.Table]:
        """Yield blocks of rows."""
        return self._run(node).tables()

    def _items(self) -> Iterator[Item]:
        return iter(self._run())

    def _run_again(self, number: int, seed: int) -> Execution:
        """Return the run of that number, which is the same each time for the same seed."""
        self._last = Execution(self._node, self._context, self._name, number, seed)
        return self._last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
