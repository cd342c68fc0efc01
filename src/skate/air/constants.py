"""Names of metrics that are added to results, and of files in their folders."""

from typing import Final

__all__ = [
    "EXPR_ERROR_FILE",
    "EXPR_ERROR_PICKLE_FILE",
    "EXPR_PROGRESS_FILE",
    "EXPR_RESULT_FILE",
    "TIMESTAMP",
    "TIME_THIS_ITER_S",
    "TRAINING_ITERATION",
]

TRAINING_ITERATION: Final = "training_iteration"
TIME_THIS_ITER_S: Final = "time_this_iter_s"
TIMESTAMP: Final = "timestamp"
EXPR_RESULT_FILE: Final = "result.json"
EXPR_PROGRESS_FILE: Final = "progress.csv"
EXPR_ERROR_FILE: Final = "error.txt"
EXPR_ERROR_PICKLE_FILE: Final = "error.pkl"
