"""Clean and encode a table while it is being read.

Shows a folder of Parquet files as one dataset, functions over rows and over batches that run in parallel, and tensors
for a training loop: the table is never in memory as a whole.

Prints:

    600 reviews, 400 of them long enough
    batches of 64 reviews and 16 letters: 6, and a last one of 16
    1 star: 200, 5 stars: 200
"""

# needs: core, data

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data

REVIEWS = {"Too Sweet, And Far Too Dear": 1, "Fine": 3, "Warm, Crisp, And Gone In A Minute": 5}


def write_reviews(folder):
    table = pa.table({"text": list(REVIEWS) * 100, "stars": list(REVIEWS.values()) * 100})
    for part in range(2):
        pq.write_table(table, Path(folder) / f"part-{part}.parquet")


def encode(batch, width=16):
    """Add the first letters of each text as numbers; a text that is too short is filled up with zeros."""
    import numpy as np

    codes = [[ord(letter) - 96 for letter in text if letter.isalpha()] for text in batch["text"].tolist()]
    batch["letters"] = list(np.array([(code + [0] * width)[:width] for code in codes]))
    return batch


with tempfile.TemporaryDirectory() as folder:
    write_reviews(folder)
    reviews = ray.data.read_parquet(folder)
    lower = reviews.map(lambda row: {"text": row["text"].lower(), "stars": row["stars"]})
    long_enough = lower.filter(lambda row: len(row["text"]) > 10)
    encoded = long_enough.map_batches(encode, batch_format="pandas", batch_size=128, num_cpus=1)
    print(f"{reviews.count()} reviews, {long_enough.count()} of them long enough")

    shapes, stars = Counter(), Counter()
    for batch in encoded.select_columns(["letters", "stars"]).iter_torch_batches(batch_size=64):
        shapes[tuple(batch["letters"].shape)] += 1
        stars.update(batch["stars"].tolist())
    print(f"batches of 64 reviews and 16 letters: {shapes[64, 16]}, and a last one of", end=" ")
    print(*(count for count, _ in shapes if count < 64))
    print(f"1 star: {stars[1]}, 5 stars: {stars[5]}")
