"""An engine whose steps take as long as those of a fast GPU, but compute nothing: what is left is the cost of serving.

The steps of a 1.5-billion-parameter model on an H200 set the defaults: 1.3 ms for a step that generates, and 9 ms plus
10 us for each token for one with prompts. Launching a step with prompts calls some hundred small operators of torch,
each of which gives up the interpreter's lock, as launching kernels does.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from skate.llm._engine.model import Model, TorchEngineConfig
from skate.llm._engine.model_files import open_model
from skate.llm._engine.runner import LaunchedStep, RowRequest, Runner, SampledTokens
from skate.llm._engine.scheduler import Step
from skate.llm._engine.torch_engine import TorchEngine

VOCABULARY = 4096
DECODE_S, PREFILL_S, PREFILL_TOKEN_S = 1.3e-3, 4e-3, 10e-6
PREFILL_OPERATORS = 400


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
        self._number = self._number % (VOCABULARY - 300) + 1
        self._ends = max(self._ends, time.perf_counter()) + duration
        return _Step(self._ends, [self._number + 256] * sum(row.samples for row in step.rows))

    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Not needed."""
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


def start(config: Any) -> TorchEngine:
    """Start the engine of a configuration: `llm_engine="llm_paced:start"`."""
    return load(config.model_loading_config.model_source)


def write() -> tempfile.TemporaryDirectory[str]:
    """Write a model of one layer to a temporary folder."""
    import itertools

    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 0,
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
    words = itertools.chain(letters, map("".join, itertools.product(letters[33:97], repeat=2)))
    tokenizer = Tokenizer(
        models.BPE({word: number for number, word in enumerate(itertools.islice(words, VOCABULARY))}, [])
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": letters[0], "chat_template": template})
    )
    return holder
