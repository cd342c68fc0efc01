"""Statistics for fitting a preprocessor, computed in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skate.data.aggregate import AggregateFnV2

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["StatComputationPlan"]


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _Statistic:
    aggregate: AggregateFnV2[Any, Any]
    finish: Callable[[Any], Any]


class StatComputationPlan:
    """The statistics that a preprocessor requests while it is fitted.

    `Preprocessor._fit` adds statistics; they are computed together when it returns, and stored in `stats_`.

    >>> import skate
    >>> from skate.data.aggregate import Max, Min
    >>> plan = StatComputationPlan()
    >>> plan.add_aggregator(aggregator_fn=Min, columns=["id"])
    >>> plan.add_aggregator(aggregator_fn=Max, columns=["id"])
    >>> plan.compute(skate.data.range(3))
    {'min(id)': 0, 'max(id)': 2}
    """

    def __init__(self) -> None:
        self._statistics: list[_Statistic] = []

    def reset(self) -> None:
        """Remove all requested statistics."""
        self._statistics.clear()

    def add_aggregator(
        self,
        *,
        aggregator_fn: Callable[[str], AggregateFnV2[Any, Any]],
        post_process_fn: Callable[[Any], Any] = _identity,
        columns: list[str],
        batch_format: Any = None,
    ) -> None:
        """Request an aggregate of each column; its name is the key in `stats_`.

        Args:
            aggregator_fn: Function that creates the aggregate for a column.
            post_process_fn: Function that converts the result of the aggregate to the statistic.
            columns: The columns.
            batch_format: Accepted; aggregates work on Arrow.
        """
        for column in columns:
            self._statistics.append(_Statistic(aggregator_fn(column), post_process_fn))

    def compute(self, dataset: Dataset) -> dict[str, Any]:
        """Return the requested statistics by name, computed in one pass over the needed columns."""
        aggregates = [each.aggregate for each in self]
        if not aggregates:
            return {}
        targets = [each.get_target_column() for each in aggregates]
        if all(name is not None for name in targets):
            dataset = dataset.select_columns([str(name) for name in dict.fromkeys(targets)])
        found = dataset.aggregate(*aggregates)
        return {each.aggregate.name: each.finish(found[each.aggregate.name]) for each in self}

    def __iter__(self) -> Iterator[_Statistic]:
        return iter(self._statistics)

    def __len__(self) -> int:
        return len(self._statistics)
