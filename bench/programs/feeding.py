"""Text that is tokenised while a model trains on it: how long the training waits for its batches.

One CPU prepares the data, another trains. The model is made so deep that a step takes about twice as long as its batch
takes to prepare: more than one CPU's worth of tokenising could not be hidden by anybody.
"""

from __future__ import annotations

import importlib
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import meter

job = meter.Job()
ray: Any = job.load()
data: Any = importlib.import_module(f"{job.system}.data")
data.DataContext.get_current().enable_progress_bars = False

ROWS = 8_000
WORDS = 150  # in a document
TOKENS = 128
BATCH = 32
VOCABULARY = 4096
WARM_UP = 20  # steps: workers start, and the first documents come
STEPS = 200


def corpus() -> list[str]:
    """Return made-up documents, whose words are as uneven as those of a language."""
    import numpy as np

    random = np.random.default_rng(7)
    syllables = ["ka", "lo", "mi", "ren", "tus", "vo", "shi", "an", "der", "pel", "qua", "sto", "ing", "ber"]
    words = np.array(["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(20_000)])
    chosen = words[np.minimum(random.zipf(1.3, (ROWS, WORDS)), len(words)) - 1]
    return [" ".join(document) for document in chosen]


class Tokenize:
    """Encodes documents, cut and padded to one length."""

    def __init__(self, path: str) -> None:
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_file(path)
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding(length=TOKENS)

    def __call__(self, batch: Any) -> Any:
        import numpy as np

        encoded = self._tokenizer.encode_batch(list(batch["text"]))
        return {"tokens": np.array([each.ids for each in encoded], np.int64)}


def trained_tokenizer(documents: list[str], folder: Path) -> str:
    """Train a byte-pair tokenizer, and return where it is."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, special_tokens=["[PAD]"]
    )
    tokenizer.train_from_iterator(documents[:1000], trainer)
    path = str(folder / "tokenizer.json")
    tokenizer.save(path)
    return path


class Training:
    """A small language model that learns the last token, on one thread."""

    def __init__(self, layers: int) -> None:
        import torch

        torch.set_num_threads(1)
        width = 64
        self._embed = torch.nn.Embedding(VOCABULARY, width)
        self._layers = torch.nn.Sequential(
            *(
                torch.nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
                for _ in range(layers)
            )
        )
        self._guess = torch.nn.Linear(width, VOCABULARY)
        parts = (self._embed, self._layers, self._guess)
        self._optimizer = torch.optim.AdamW([weights for part in parts for weights in part.parameters()])

    def step(self, tokens: Any) -> None:
        """Learn from a batch."""
        import torch

        scores = self._guess(self._layers(self._embed(tokens[:, :-1])).mean(1))
        loss = torch.nn.functional.cross_entropy(scores, tokens[:, -1])
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def seconds(step: Any) -> float:
    """Return the best time of three on the processor, which others may use meanwhile."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        step()
        times.append(time.process_time() - begun)
    return min(times)


def data_feeding() -> float:
    """Return the per cent of the time that the training waits in `next`."""
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory(prefix="bench-feeding-") as name:
        folder = Path(name)
        documents = corpus()
        path = trained_tokenizer(documents, folder)
        text = folder / "text"
        text.mkdir()
        for part in range(4):
            pq.write_table(pa.table({"text": documents[part::4]}), text / f"{part}.parquet")
        tokenize = Tokenize(path)
        first = {"text": documents[:BATCH]}
        preparing = seconds(lambda: tokenize(first))
        tokens = torch.as_tensor(tokenize(first)["tokens"])
        training = deep_enough(tokens, 2 * preparing)
        ray.init(num_cpus=1, include_dashboard=False)
        try:
            dataset = data.read_parquet(str(text)).map_batches(
                Tokenize, fn_constructor_args=[path], concurrency=1, batch_size=256
            )
            share = 100 * waiting_share(dataset, training)
            print(
                f"preparing a batch takes {1000 * preparing:.1f} ms, waiting {share:.2f} % of the time",
                flush=True,
            )
            return share
        finally:
            ray.shutdown()


def deep_enough(tokens: Any, least: float) -> Training:
    """Return a model of which a step takes so many seconds, or a little longer."""
    one, three = (Training(layers) for layers in (1, 3))
    shallow, deeper = seconds(lambda: one.step(tokens)), seconds(lambda: three.step(tokens))
    each = (deeper - shallow) / 2
    return Training(max(1, math.ceil((least - shallow) / each) + 1))


def waiting_share(dataset: Any, training: Training) -> float:
    """Train, and return the share of the time in which no batch was there."""
    waited, begun = 0.0, 0.0
    batches = iter(dataset.iter_torch_batches(batch_size=BATCH, drop_last=True, device="cpu"))
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            waited, begun = 0.0, time.perf_counter()
        before = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - before
        training.step(batch["tokens"])
    return waited / (time.perf_counter() - begun)


if __name__ == "__main__":
    job.run(data_feeding)
