"""Datasets and batches that tests of preprocessors start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import skate
from skate.data import Dataset


def dataset(blocks: int = 1, **columns: list[Any]) -> Dataset:
    """Return a dataset of these columns, in so many blocks."""
    frame = pd.DataFrame(columns)
    if blocks == 1:
        return skate.data.from_pandas(frame)
    parts = np.array_split(np.arange(len(frame)), blocks)
    return skate.data.from_pandas([frame.iloc[part] for part in parts])


def column(ds: Dataset, name: str) -> list[Any]:
    """Return the values of a column."""
    return [row[name] for row in ds.take_all()]
