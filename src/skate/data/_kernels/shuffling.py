"""Put the rows of a block in random order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from skate.data._kernels import taking


def permute(block: pa.Table, seed: int | Sequence[int]) -> pa.Table:
    """Return the rows in a random order, every order equally likely.

    Args:
        block: The table to put in another order.
        seed: The same seed gives the same order for a block of the same length. Give each block one of its own, for
            example `[seed, index]`.
    """
    # Polars shuffles in a third of the time, but takes a plain number: NumPy makes one of what its generators take.
    (mixed,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    order = pl.select(pl.int_range(block.num_rows, dtype=pl.UInt32).shuffle(seed=int(mixed))).to_series()
    return taking.take(block, order)
