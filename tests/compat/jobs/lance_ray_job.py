"""Write a dataset to a Lance table with lance-ray, add a column in Ray tasks, and read it back with a filter."""

import os

import lance
import pyarrow as pa
import ray
from lance_ray import add_columns, read_lance, write_lance
from reporting import report

PATH = "numbers.lance"


def doubled(batch):
    """Compute columns from one batch of a fragment."""
    return pa.record_batch(
        {"double": [2 * number.as_py() for number in batch["id"]], "pid": [os.getpid()] * len(batch)}
    )


ray.init(num_cpus=2)
write_lance(ray.data.range(100, override_num_blocks=4), PATH)
add_columns(PATH, transform=doubled, read_columns=["id"], concurrency=2)
rows = read_lance(PATH, filter="id >= 60", columns=["id", "double"]).take_all()
report(
    result=sorted((row["id"], row["double"]) for row in rows),
    expected=[(number, 2 * number) for number in range(60, 100)],
    pids=lance.dataset(PATH).to_table(columns=["pid"])["pid"].to_pylist(),
)
