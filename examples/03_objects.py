"""Compare every row of a large matrix with every other, without copying the matrix to anyone.

Shows an object that is written once and read in place by all tasks, and results that stay where they are
until they are needed.
"""

import numpy as np

import skate

ROWS, COLUMNS, BLOCK = 2_000, 128, 500


@skate.remote
def nearest(matrix: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return for each row of the block the index of the other row most like it."""
    similarity = matrix[first:last] @ matrix.T
    similarity[np.arange(last - first), np.arange(first, last)] = -np.inf
    return similarity.argmax(axis=1)


@skate.remote
def join(*parts: np.ndarray) -> np.ndarray:
    """Put the blocks together; the parts go from worker to worker, not through the driver."""
    return np.concatenate(parts)


def main() -> None:
    rows = np.random.default_rng(seed=1).normal(size=(ROWS // 2, COLUMNS))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    twins = np.concatenate([rows, rows])  # Row i + ROWS // 2 is the twin of row i.

    matrix = skate.put(twins)
    parts = [nearest.remote(matrix, first, first + BLOCK) for first in range(0, ROWS, BLOCK)]
    found = skate.get(join.remote(*parts))

    expected = np.roll(np.arange(ROWS), ROWS // 2)
    shared = skate.get(matrix)
    print(f"{(found == expected).sum()} of {ROWS} rows found their twin")
    print(f"{shared.nbytes / 1e6:.1f} MB, shared by {len(parts)} tasks; writeable: {shared.flags.writeable}")


if __name__ == "__main__":
    main()
