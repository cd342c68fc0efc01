"""Carry a language model from text to an HTTP endpoint: prepare data, train on two workers, serve the checkpoint.

The text is the reference manual of Python, which comes with the interpreter, so the program downloads nothing. A token
is a common word, or a byte of any other. After a minute or two on two cores the model writes in the manual's manner,
without its meaning.

    make run
    python examples/09_language_model.py --steps 100    # shorter
    python examples/09_language_model.py --gpu          # train and serve on a GPU

The run's folder under out/ has the metrics, the checkpoint and curves.png.
"""

import argparse
import json
import re
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import skate
from skate import serve, train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device, prepare_model

CONTEXT = 64  # tokens that the model sees
WIDTH = 128
HEADS = 4
LAYERS = 3
BATCH = 16  # rows per worker and step
PROMPTS = ("The import statement", "If the class has", "A generator")


# ------------------------------------------------------------ data


class Vocabulary:
    """Tokens of a text: the bytes 0 to 255, then common words, each with the space before it."""

    SIZE = 2048
    PARTS = re.compile(r" ?[A-Za-z]+| +|.", re.DOTALL)

    def __init__(self, texts: list[str]) -> None:
        counts = Counter(part for text in texts for part in self.PARTS.findall(text) if len(part) > 1)
        self.words = [word.encode() for word, _ in counts.most_common(self.SIZE - 256)]
        self.ids = {word: 256 + i for i, word in enumerate(self.words)}

    def encode(self, text: str) -> list[int]:
        parts = (part.encode() for part in self.PARTS.findall(text))
        return [token for part in parts for token in ([self.ids[part]] if part in self.ids else part)]

    def decode(self, tokens: list[int]) -> str:
        parts = (bytes([token]) if token < 256 else self.words[token - 256] for token in tokens)
        return b"".join(parts).decode(errors="replace")


def cut_into_rows(batch: dict, vocabulary: Vocabulary) -> dict:
    """Turn each text into overlapping rows of CONTEXT + 1 tokens: the last token of a row is only predicted."""
    rows = [
        tokens[start : start + CONTEXT + 1]
        for tokens in map(vocabulary.encode, batch["text"])
        for start in range(0, len(tokens) - CONTEXT, CONTEXT // 2)
    ]
    return {"tokens": np.array(rows, dtype=np.int16).reshape(-1, CONTEXT + 1)}


def read_manual() -> tuple[skate.data.Dataset, Vocabulary]:
    """Return the reference manual of Python as rows of tokens in random order, and the vocabulary."""
    texts = list(topics.values())
    vocabulary = Vocabulary(texts)
    rows = skate.data.from_items([{"text": text} for text in texts]).map_batches(
        cut_into_rows, fn_kwargs={"vocabulary": vocabulary}
    )
    return rows.random_shuffle(seed=0), vocabulary


# ------------------------------------------------------------ the model


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm_2(x))


class LanguageModel(nn.Module):
    """A decoder-only transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(Vocabulary.SIZE, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, Vocabulary.SIZE, bias=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.token(tokens) + self.position(positions)))


# ------------------------------------------------------------ training


def train_loop(config: dict) -> None:
    """Train on this worker's shard of the dataset; rank 0 saves the weights at the end."""
    torch.manual_seed(0)
    model = prepare_model(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = train.get_dataset_shard("train")
    step, total = 0, config["steps"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=total)
    while step < total:
        for batch in rows.iter_torch_batches(batch_size=BATCH, device=get_device(), drop_last=True):
            tokens = batch["tokens"].long()
            scores = model(tokens[:, :-1])
            loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 10 == 0 or step == total:
                train.report({"step": step, "loss": loss.item()})
            if step % 100 == 0 and train.get_context().get_world_rank() == 0:
                print(f"step {step} of {total}: loss {loss.item():.2f}")
            if step == total:
                break
    if train.get_context().get_world_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            weights = getattr(model, "module", model).state_dict()
            torch.save(weights, Path(folder, "model.pt"))
            train.report({"step": step, "loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


# ------------------------------------------------------------ serving


@serve.deployment(max_ongoing_requests=16)
class Writer:
    """Continues a prompt. Requests that arrive together are generated in one batch."""

    def __init__(self, checkpoint: Checkpoint, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = LanguageModel().to(self.device).eval()
        with checkpoint.as_directory() as folder:
            self.model.load_state_dict(torch.load(Path(folder, "model.pt"), map_location=self.device))

    async def __call__(self, request) -> dict:
        begun = time.perf_counter()
        text = await self.write(request.query_params.get("prompt") or "The")
        return {"text": text, "seconds": time.perf_counter() - begun}

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def write(self, prompts: list[str]) -> list[str]:
        """Return each prompt, followed by 30 tokens that the model generates."""
        encoded = [self.vocabulary.encode(prompt) for prompt in prompts]
        width = min(map(len, encoded))  # of the longer prompts, the model sees the end
        tokens = torch.tensor([row[-width:] for row in encoded], device=self.device)
        with torch.inference_mode():
            for _ in range(30):
                scores = self.model(tokens[:, -CONTEXT:])[:, -1]
                probabilities = functional.softmax(scores / 0.5, dim=-1)  # a low temperature
                tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], dim=1)
        generated = [self.vocabulary.decode(row) for row in tokens[:, width:].tolist()]
        return [prompt + text for prompt, text in zip(prompts, generated, strict=True)]


# ------------------------------------------------------------ the whole way


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--gpu", action="store_true")
    options.add_argument("--out", type=Path, default=Path("out"))
    options = options.parse_args()

    begun = time.perf_counter()
    skate.init()
    rows, vocabulary = read_manual()
    rows = rows.materialize()
    print(f"data: {rows.count():,} rows of {CONTEXT} tokens in {time.perf_counter() - begun:.1f} s")

    begun = time.perf_counter()
    result = TorchTrainer(
        train_loop,
        train_loop_config={"steps": options.steps},
        datasets={"train": rows},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(
            name=f"language_model_{int(time.time())}", storage_path=str(options.out.resolve())
        ),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    seconds = time.perf_counter() - begun
    print(
        f"train: loss {losses.iloc[0]:.2f} to {losses.iloc[-1]:.2f} in {options.steps} steps, {seconds:.1f} s"
    )
    print(f"       {result.path}")

    begun = time.perf_counter()
    serve.start(http_options={"port": 0})
    serve.run(Writer.bind(result.checkpoint, vocabulary))
    host, port = serve.address()
    print(f"serve: up after {time.perf_counter() - begun:.1f} s on http://{host}:{port}/?prompt=The")
    for prompt in PROMPTS:
        with urllib.request.urlopen(f"http://{host}:{port}/?prompt={urllib.parse.quote(prompt)}") as reply:
            answer = json.load(reply)
        print(f"       {answer['text']!r} ({answer['seconds']:.2f} s)")
    serve.shutdown()
    skate.shutdown()


if __name__ == "__main__":
    main()
