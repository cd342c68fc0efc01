"""A decoder language model of four small layers, a text to train it on, and the options of the examples beside it.

The model is a plain sequence of layers, so that each example can put it on its workers in its own way: copy it, shard
it, or cut it. A token is a byte. Every step of a run has the same batch however many workers there are; each worker
takes its part of it. So all examples learn the same, and what `train_alone` learns in one process is what they should
have.
"""

import argparse
import tempfile
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
HIDDEN = 64
HEADS = 4
BLOCKS = 2
CONTEXT = 32
BATCH = 24
LEARNING_RATE = 3e-3

TEXT = """\
The lake had frozen over in the night, and in the morning the whole village stood at its edge. The smith went first,
because he was the heaviest: where he could skate, all could skate. He went out in a straight line, slowly, and the ice
sang under him, and nobody spoke. In the middle he turned, and came back a little faster, and then all of them were on
the ice at once, the old ones with chairs that they pushed before them, the young ones with hands that they held.
Who falls on the ice gets up again, said the smith, and who does not fall has not tried to go fast. By noon there were
lines all over the lake, long ones and short ones, lines that met and lines that never did, and in the evening the wind
laid snow over them, so that in the morning the ice was new, and the whole village stood at its edge again.
"""


class Embedding(nn.Module):
    """Bytes and their places to vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, HIDDEN)
        self.place = nn.Embedding(CONTEXT, HIDDEN)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))


class Block(nn.Module):
    """Attention to what came before, then a network for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(HIDDEN)
        self.query = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.key = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.value = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.attended = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.before_network = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normal = self.before_attention(states)
        # However many heads are here: with tensor parallelism each worker has some of them.
        query, key, value = (
            project(normal).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.attended(heads.transpose(1, 2).flatten(2))
        return states + self.down(functional.gelu(self.up(self.before_network(states))))


class Head(nn.Module):
    """Vectors to scores of the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.scores = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.scores(self.norm(states))


def tiny_lm() -> nn.Sequential:
    """Return the model, with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(Embedding(), *(Block() for _ in range(BLOCKS)), Head())


def next_token_loss(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1).float(), following.flatten())


def adamw(parameters: Iterator[nn.Parameter]) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE)


def batch_of(step: int, part: int = 0, parts: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a part of the batch of a step: rows of bytes, and for each byte the one that follows it."""
    text = torch.frombuffer(bytearray(TEXT.encode()), dtype=torch.uint8).long()
    starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])[part::parts]
    return rows[:, :-1], rows[:, 1:]


def train_alone(steps: int) -> nn.Sequential:
    """Train in this process, without any strategy."""
    model = tiny_lm()
    optimizer = adamw(model.parameters())
    for step in range(steps):
        tokens, following = batch_of(step)
        next_token_loss(model(tokens), following).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def parser(description: str, multiple_of: int = 1) -> argparse.ArgumentParser:
    """Return the options that all examples have; a strategy may need a multiple of some number of workers."""

    def count(text: str) -> int:
        if int(text) < 1 or int(text) % multiple_of:
            raise argparse.ArgumentTypeError(f"{text} workers: it has to be a multiple of {multiple_of}")
        return int(text)

    options = argparse.ArgumentParser(description=description.partition("\n")[0])
    options.add_argument(
        "--gpu", action="store_true", help="one GPU for each worker, and nccl instead of gloo"
    )
    options.add_argument("--workers", type=count, default=2)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument(
        "--storage", default=None, help="where the run is kept; a temporary folder by default"
    )
    return options


def storage(options: argparse.Namespace) -> str:
    return options.storage or tempfile.mkdtemp(prefix="tiny-lm-")
