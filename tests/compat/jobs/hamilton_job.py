"""Compute features with Hamilton's Ray adapter, and sum shards with its Ray task executor."""

import os
import sys

os.environ["HAMILTON_AUTOLOAD_EXTENSIONS"] = "0"  # else it imports every library that it finds installed

import hamilton_features
import ray
from hamilton import base, driver
from hamilton.execution import executors
from hamilton.htypes import Collect, Parallelizable
from hamilton.plugins.h_ray import RayGraphAdapter, RayTaskExecutor
from reporting import report

FEATURES = ["cost_per_signup", "spend_zero_mean", "pid"]


def shard(shards: int) -> Parallelizable[int]:
    yield from range(shards)


def shard_sum(shard: int) -> tuple:
    return sum(range(shard * 1000, (shard + 1) * 1000)), os.getpid()


def shard_sums(shard_sum: Collect[tuple]) -> list:
    return list(shard_sum)


ray.init(num_cpus=2)
on_ray = (
    driver.Builder()
    .with_modules(hamilton_features)
    .with_adapters(RayGraphAdapter(base.PandasDataFrameResult()))
)
in_process = driver.Builder().with_modules(hamilton_features).with_adapters(base.PandasDataFrameResult())
frame = on_ray.build().execute(FEATURES, inputs={"rows": 100})
expected = in_process.build().execute(FEATURES, inputs={"rows": 100})

fan_out = (
    driver.Builder()
    .with_modules(sys.modules[__name__])
    .enable_dynamic_execution(allow_experimental_mode=True)
    .with_local_executor(executors.SynchronousLocalTaskExecutor())
    .with_remote_executor(RayTaskExecutor(skip_init=True))
    .build()
)
sums = fan_out.execute(["shard_sums"], inputs={"shards": 6})["shard_sums"]

report(
    result=[frame[name].tolist() for name in FEATURES[:2]] + [total for total, _ in sums],
    expected=[expected[name].tolist() for name in FEATURES[:2]]
    + [sum(range(start, start + 1000)) for start in range(0, 6000, 1000)],
    pids={*frame["pid"].tolist(), *(pid for _, pid in sums)},
)
