"""Carry a language model from text to an HTTP endpoint: prepare data, train on two workers, serve the checkpoint.

The text is the reference manual of Python, which comes with the interpreter, so the program downloads nothing. A token
is a byte. After a minute on two cores the model spells most words and knows the shape of the manual's sentences.

    make run
    python examples/09_language_model.py --steps 100    # shorter
    python examples/09_language_model.py --gpu          # train and serve on a GPU

The run's folder under out/ has the metrics, the checkpoint and curves.png.
"""

import argparse
import json
import tempfile
import time
import urllib.parse
import urllib.request
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

CONTEXT = 128  # bytes that the model sees
WIDTH = 128
HEADS = 4
LAYERS = 3
BATCH = 16  # rows per worker and step
PROMPTS = ("The import statement", "If the class has", "A generator")


# ------------------------------------------------------------ data


def cut_into_rows(batch: dict) -> dict:
    """Turn each text into rows of CONTEXT + 1 bytes: the last byte of a row is only predicted."""
    rows = [
        np.frombuffer(text.encode(), dtype=np.uint8)[start : start + CONTEXT + 1]
        for text in batch["text"]
        for start in range(0, len(text.encode()) - CONTEXT, CONTEXT // 2)
    ]
    return {"tokens": np.stack([row for row in rows if len(row) == CONTEXT + 1])}


def manual() -> skate.data.Dataset:
    """Return the reference manual of Python as rows of bytes, in random order."""
    texts = [{"text": text} for text in topics.values() if len(text) > 2 * CONTEXT]
    return skate.data.from_items(texts).map_batches(cut_into_rows).random_shuffle(seed=0)


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
    """A decoder over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False))

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

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = LanguageModel().to(self.device).eval()
        with checkpoint.as_directory() as folder:
            self.model.load_state_dict(torch.load(Path(folder, "model.pt"), map_location=self.device))

    async def __call__(self, request) -> dict:
        begun = time.perf_counter()
        text = await self.write(request.query_params["prompt"])
        return {"text": text, "seconds": time.perf_counter() - begun}

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def write(self, prompts: list[str]) -> list[str]:
        """Return each prompt with 80 bytes that the model writes after it."""
        width = min(len(prompt.encode()) for prompt in prompts)
        tokens = torch.tensor([list(prompt.encode()[-width:]) for prompt in prompts], device=self.device)
        start = tokens.shape[1]
        with torch.inference_mode():
            for _ in range(80):
                scores = self.model(tokens[:, -CONTEXT:])[:, -1]
                likely = functional.softmax(
                    scores / 0.5, dim=-1
                )  # a low temperature: mostly the likeliest byte
                tokens = torch.cat([tokens, torch.multinomial(likely, 1)], dim=1)
        written = [bytes(row).decode(errors="replace") for row in tokens[:, start:].tolist()]
        return [prompt + text for prompt, text in zip(prompts, written, strict=True)]


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
    dataset = manual().materialize()
    print(f"data: {dataset.count():,} rows of {CONTEXT} bytes in {time.perf_counter() - begun:.1f} s")

    begun = time.perf_counter()
    result = TorchTrainer(
        train_loop,
        train_loop_config={"steps": options.steps},
        datasets={"train": dataset},
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
    serve.run(Writer.bind(result.checkpoint))
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
