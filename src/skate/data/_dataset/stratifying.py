"""Cutting a dataset so that the values of a column have the same shares in both parts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from skate.data.dataset import Dataset, MaterializedDataset

_MARK = "__is_test"


def stratified(
    dataset: Dataset, test_size: int | float, column: str
) -> tuple[MaterializedDataset, MaterializedDataset]:
    """Return a training and a test set: the last rows of each group are for testing."""
    share = test_size if isinstance(test_size, float) else test_size / dataset.count()
    marked = dataset.groupby(column).map_groups(partial(_marked, share), batch_format="numpy").materialize()

    def part(is_test: bool) -> MaterializedDataset:
        return marked.filter(lambda row: row[_MARK] == is_test).drop_columns([_MARK]).materialize()

    return part(False), part(True)


def _marked(share: float, group: dict[str, Any]) -> dict[str, Any]:
    rows = len(next(iter(group.values())))
    return {**group, _MARK: np.arange(rows) >= rows - int(rows * share)}
