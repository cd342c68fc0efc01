"""Frames of datasets as LightGBM takes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from skate.air import _optional

__all__ = ["normalize_pandas_for_lightgbm"]


def normalize_pandas_for_lightgbm(df: Any) -> Any:
    """Return a frame whose columns are NumPy's or categories: LightGBM does not take columns that are Arrow's.

    Args:
        df: A frame of pandas', which stays as it is.

    Returns:
        Another; a column of integers with missing values becomes one of floats.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"x": pd.array([1, None], dtype="int64[pyarrow]")})
        >>> normalize_pandas_for_lightgbm(frame)["x"].dtype
        dtype('float64')
    """
    pd = _optional.load("pandas", "normalize_pandas_for_lightgbm")
    found = df.copy(deep=False)
    for name in df.columns:
        column = df[name]
        dtype = column.dtype
        if isinstance(dtype, pd.ArrowDtype):
            found[name] = pd.Series(pa.array(column).to_pandas().array, index=df.index)
        elif isinstance(dtype, pd.CategoricalDtype) and isinstance(dtype.categories.dtype, pd.ArrowDtype):
            found[name] = column.cat.rename_categories(dtype.categories.tolist())
    return found
