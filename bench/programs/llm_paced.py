"""An engine whose steps take as long as those of a fast GPU, but compute nothing, which leaves the cost of serving.

The times are about those of a model of 1.5 billion parameters on an H200. Launching a step with prompts calls some
hundred small operators of torch, each of which releases the interpreter's lock, as launching kernels does.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llm_model
import torch

from skate.llm._engine.model import Model, TorchEngineConfig
from skate.llm._engine.model_files import open_model
from skate.llm._engine.runner import LaunchedStep, RowRequest, Runner, SampledTokens
from skate.llm._engine.scheduler import Step
from skate.llm._engine.torch_engine import TorchEngine
from skate.serve.llm import LLMConfig

VOCABULARY = llm_model.CONFIG["vocab_size"]
DECODE_S = 1.3e-3
PREFILL_S, PREFILL_TOKEN_S = 4e-3, 10e-6  # of a step with prompts, and of each of its tokens
PREFILL_OPERATORS = 400
TEXTS = range(256, 256 + 94)  # tokens of two ASCII characters


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that ends at a time of `time.perf_counter`."""

    ends: float
    tokens: list[int]

    def wait(self) -> SampledTokens:
        time.sleep(max(0.0, self.ends - time.perf_counter()))
        return SampledTokens(self.tokens)


class PacedRunner:
    """Runs steps that take as long as on a GPU, one after another."""

    depth = 2

    def __init__(self) -> None:
        self._ends = 0.0
        self._number = 0
        self._numbers = torch.zeros(64)

    def launch(self, step: Step, requests: Sequence[RowRequest]) -> LaunchedStep:
        """Begin a step."""
        duration = DECODE_S
        if step.tokens > len(step.rows):
            duration = PREFILL_S + PREFILL_TOKEN_S * step.tokens
            for _ in range(PREFILL_OPERATORS):
                torch.add(self._numbers, 1)
        self._number += 1
        self._ends = max(self._ends, time.perf_counter()) + duration
        return _Step(self._ends, [TEXTS[self._number % len(TEXTS)]] * sum(row.samples for row in step.rows))

    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Raise NotImplementedError: the model only generates."""
        raise NotImplementedError


class PacedModel(Model):
    """A tiny model with the pace of a large one."""

    @property
    def runner(self) -> Runner:
        """The runner that computes nothing."""
        if self._runner is None:
            self._runner = PacedRunner()
        return self._runner

    @property
    def runs_ahead(self) -> bool:
        """Whether steps overlap, as on a GPU."""
        return True


def load(folder: str) -> TorchEngine:
    """Return the engine of a folder that `write` has written."""
    settings = TorchEngineConfig(
        device="cpu", max_num_seqs=256, max_num_batched_tokens=8192, num_threads=1, max_model_len=1024
    )
    return TorchEngine(PacedModel(open_model(folder), settings))


def start(config: LLMConfig) -> TorchEngine:
    """Start the engine of a configuration: `llm_engine="llm_paced:start"`."""
    folder = config.model_loading_config.model_source
    assert isinstance(folder, str)
    return load(folder)


def write() -> tempfile.TemporaryDirectory[str]:
    """Write a model of one layer to a temporary folder."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    config = llm_model.CONFIG | {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    layer = "model.layers.0"
    names = ("q", "k", "v", "o")
    weights = {f"{layer}.self_attn.{name}_proj.weight": torch.zeros(16, 16) for name in names}
    weights |= {f"{layer}.mlp.{name}_proj.weight": torch.zeros(16, 16) for name in ("gate", "up", "down")}
    for norm in (f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm"):
        weights[f"{norm}.weight"] = torch.ones(16)
    weights["model.embed_tokens.weight"] = torch.zeros(VOCABULARY, 16)
    holder = tempfile.TemporaryDirectory(prefix="bench-llm-")
    folder = Path(holder.name)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = itertools.chain(letters, map("".join, itertools.product(letters, repeat=2)))
    tokenizer = Tokenizer(
        models.BPE({word: number for number, word in enumerate(itertools.islice(words, VOCABULARY))}, [])
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": letters[0]}))
    return holder
