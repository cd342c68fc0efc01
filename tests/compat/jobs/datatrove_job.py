"""Filter documents with datatrove's Ray executor, the shards in Ray actors, as its local executor does."""

import gzip
import json
import os
from pathlib import Path

import ray
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.writers import JsonlWriter
from reporting import report


def documents(data, rank, world_size):
    """Yield the documents of a shard, with the process that makes them."""
    for number in range(rank, 100, world_size):
        yield Document(text="ab" * number, id=str(number), metadata={"pid": os.getpid()})


def is_long(document):
    return len(document.text) >= 100


def filtered(executor, **options):
    """Return the documents that the pipeline keeps, and the processes that made them."""
    folder = Path(executor.__name__)
    executor(
        pipeline=[documents, LambdaFilter(is_long), JsonlWriter(str(folder))],
        tasks=4,
        logging_dir=str(folder / "logs"),
        **options,
    ).run()
    kept = []
    for shard in sorted(folder.glob("*.jsonl.gz")):
        kept += [json.loads(line) for line in gzip.decompress(shard.read_bytes()).splitlines()]
    return [(each["id"], each["text"]) for each in kept], [each["metadata"]["pid"] for each in kept]


ray.init(num_cpus=2)
result, pids = filtered(RayPipelineExecutor, mem_per_cpu_gb=0.1)
expected, _ = filtered(LocalPipelineExecutor, workers=1)
report(result=result, expected=expected, pids=pids)
