from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from skate.data._kernels import threads
print(threads.limit(3))
import polars
print(polars.thread_pool_size(), threads.limit(1))
"""


@pytest.mark.parametrize(
    ("environment", "expected"), [({}, "True 3 False"), ({"POLARS_MAX_THREADS": "2"}, "False 2 False")]
)
def test_the_number_of_threads_is_set_before_polars_is_imported(
    environment: dict[str, str], expected: str
) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == expected.split()
