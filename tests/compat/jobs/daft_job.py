"""Join, group and sort with Daft's Ray runner, and call an object of the user's in two actors."""

import os

import daft
import ray
from daft import DataType, col
from reporting import report


@daft.udf(return_dtype=DataType.int64(), concurrency=2)
class Pid:
    """The process of the actor that a row was sent to; Daft starts two, and may give one of them all the rows."""

    def __init__(self):
        self.pid = os.getpid()

    def __call__(self, rows):
        return [self.pid] * len(rows)


def turnover():
    """Return the turnover by region, computed by the runner that is set."""
    orders = daft.from_pydict(
        {"shop": [n % 7 for n in range(1000)], "amount": list(range(1000))}
    ).into_partitions(4)
    shops = daft.from_pydict({"shop": list(range(7)), "region": [n % 3 for n in range(7)]})
    by_region = orders.join(shops, on="shop").groupby("region").agg(col("amount").sum()).sort("region")
    return by_region.to_pydict()


ray.init(num_cpus=2)
daft.set_runner_ray()
result = turnover()
pids = daft.from_pydict({"row": list(range(100))}).into_partitions(4).select(Pid(col("row"))).to_pydict()
shops = [n % 7 for n in range(1000)]
expected = [sum(n for n in range(1000) if shops[n] % 3 == region) for region in range(3)]
report(
    result=result,
    expected={"region": [0, 1, 2], "amount": expected},
    pids=pids["row"],
)
