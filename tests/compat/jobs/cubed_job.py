"""Standardise the columns of a chunked array with Cubed, its plan run by Ray tasks."""

import os
import tempfile

import cubed
import cubed.array_api as xp
import numpy as np
from cubed.runtime.executors.ray import RayExecutor
from reporting import report


def pid_of(block):
    return np.full(block.shape, os.getpid(), dtype=np.int64)


numbers = np.random.default_rng(3).normal(size=(400, 30))
with tempfile.TemporaryDirectory() as folder:
    spec = cubed.Spec(folder, allowed_mem="100MB", executor=RayExecutor(ray_init={"num_cpus": 2}))
    array = cubed.from_array(numbers, chunks=(100, 10), spec=spec)
    standardised = (array - xp.mean(array, axis=0)) / xp.std(array, axis=0)
    result = standardised.compute()
    pids = cubed.map_blocks(pid_of, array, dtype=np.int64).compute(executor=RayExecutor())

expected = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
report(
    result=result.round(9).tolist(),
    expected=expected.round(9).tolist(),
    pids=np.unique(pids).tolist(),
)
