"""Group, merge, sort and map a frame with Modin, its partitions kept and worked on by Ray."""

import os

import modin.config
import modin.pandas as mpd
import numpy as np
import pandas
from reporting import report

rng = np.random.default_rng(11)
orders = {
    "shop": rng.integers(0, 20, 4000),
    "amount": rng.integers(1, 500, 4000),
    "day": rng.integers(0, 365, 4000),
}
shops = {"shop": np.arange(20), "region": [f"region {n % 4}" for n in range(20)]}


def turnover(pd):
    """Return the turnover by region and the ten largest orders, computed with Modin or with pandas."""
    merged = pd.DataFrame(orders).merge(pd.DataFrame(shops), on="shop")
    merged["taxed"] = merged["amount"].map(lambda amount: amount * 119 // 100)
    by_region = merged.groupby("region")[["amount", "taxed"]].sum().sort_index()
    largest = merged.sort_values(["taxed", "day", "shop"], ascending=False).head(10)
    return by_region.values.tolist(), largest.drop(columns="region").values.tolist()


modin.config.CpuCount.put(2)  # Modin calls ray.init itself
result = turnover(mpd)
pids = mpd.DataFrame(orders).apply(lambda row: os.getpid(), axis=1)
report(
    result=result,
    expected=turnover(pandas),
    pids=(int(pid) for pid in pids),
)
