"""Generate text on one GPU: Skate's engine beside `generate` of transformers.

The model has the shape of a Llama of 1.5 billion parameters and random weights in bfloat16; speed does not depend on
their values. Each system runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 0,
}
TINY = {
    **CONFIG,
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
REQUESTS, INPUTS, OUTPUTS = 128, 128, 128
LONG, STREAMS = 2048, (1, 16, 128)  # of the times to the first token


def write_model(folder: Path, config: dict[str, Any], device: str) -> None:
    """Write the model in Hugging Face's format."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv_heads = config["num_key_value_heads"] * config["head_dim"]
    vocabulary = config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "lm_head.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (heads, hidden),
            f"{prefix}.self_attn.k_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.v_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, heads),
            f"{prefix}.mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}.mlp.up_proj.weight": (inner, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, inner),
        }
    torch.manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        random_weights = torch.randn(shape, device=device, dtype=torch.bfloat16) * 0.02
        weights[name] = (random_weights + 1 if name.endswith("norm.weight") else random_weights).cpu()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    # Tokens stand for bytes, as those of Llama 3 do.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = itertools.chain.from_iterable(
        map("".join, itertools.product(letters, repeat=size)) for size in (1, 2, 3)
    )
    tokenizer = Tokenizer(
        models.BPE({word: number for number, word in enumerate(itertools.islice(words, vocabulary))}, [])
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": letters[0]}))


def make_prompts(count: int, length: int, vocabulary: int, seed: int | str = 0) -> list[list[int]]:
    """Return prompts of random tokens."""
    rng = random.Random(seed)
    return [[rng.randrange(1, vocabulary) for _ in range(length)] for _ in range(count)]


async def generate(
    engine: Any, prompts: list[list[int]], outputs: int
) -> tuple[float, list[float], list[list[int]]]:
    """Run all prompts at once; return the seconds, the seconds to each first token, and the tokens."""
    from skate.llm import GenerationRequest, SamplingParams

    params = SamplingParams(temperature=0, max_tokens=outputs, ignore_eos=True)
    start = time.perf_counter()
    firsts: list[float] = []

    async def stream(number: int, prompt: list[int]) -> list[int]:
        tokens: list[int] = []
        request = GenerationRequest(request_id=str(number), prompt=prompt, params=params)
        async for piece in engine.generate(request):
            if not tokens:
                firsts.append(time.perf_counter() - start)
            tokens += piece.tokens
        return tokens

    tokens = await asyncio.gather(*(stream(number, prompt) for number, prompt in enumerate(prompts)))
    return time.perf_counter() - start, firsts, list(tokens)


async def measure_engine(
    folder: Path, vocabulary: int, rounds: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Measure throughput and time to first tokens."""
    began = time.perf_counter()
    from skate.llm import load_engine

    engine = load_engine(folder, **settings)
    _, firsts, _ = await generate(engine, make_prompts(1, INPUTS, vocabulary, seed=99), 2)
    figures: dict[str, Any] = {"first_token_after_start_s": time.perf_counter() - began, "first_s": firsts[0]}
    rates, first_tokens, outputs = [], [], []
    for number in range(rounds + 1):
        prompts = make_prompts(REQUESTS, INPUTS, vocabulary, seed=number)
        elapsed, firsts, tokens = await generate(engine, prompts, OUTPUTS)
        rates.append(REQUESTS * OUTPUTS / elapsed)
        first_tokens.append(statistics.median(firsts))
        outputs.append(tokens)
    figures |= {
        "tokens_per_s_cold": rates[0],  # graphs are recorded in it
        "tokens_per_s": statistics.median(rates[1:]),
        "tokens_per_s_rounds": rates[1:],
    }
    for length in (INPUTS, LONG):
        for streams in STREAMS:
            firsts_of = []
            for number in range(3):
                prompts = make_prompts(streams, length, vocabulary, seed=f"{length} {streams} {number}")
                _, firsts, _ = await generate(engine, prompts, 2)
                firsts_of.append(statistics.median(firsts))
            figures[f"first_token_ms_{streams}x{length}"] = statistics.median(firsts_of) * 1e3
    elapsed, firsts, _ = await generate(engine, make_prompts(1, INPUTS, vocabulary, seed=5), OUTPUTS)
    figures["one_stream_tokens_per_s"] = (OUTPUTS - 1) / (elapsed - firsts[0])
    await engine.close()
    return figures


def measure_transformers(folder: Path, vocabulary: int, rounds: int) -> dict[str, Any]:
    """Measure `generate` with one batch of all prompts, which have the same length."""
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    rates = []
    for number in range(rounds + 1):
        prompts = torch.tensor(make_prompts(REQUESTS, INPUTS, vocabulary, seed=number), device=device)
        start = time.perf_counter()
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=OUTPUTS,
            min_new_tokens=OUTPUTS,
            do_sample=False,
            pad_token_id=0,
        )
        if device == "cuda":
            torch.cuda.synchronize()
        rates.append(REQUESTS * OUTPUTS / (time.perf_counter() - start))
    return {"tokens_per_s": statistics.median(rates[1:]), "tokens_per_s_rounds": rates[1:]}


def run_child(arguments: list[str]) -> dict[str, Any]:
    """Run one system in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument(
        "--tiny", action="store_true", help="a small model and few requests, to check the program"
    )
    parser.add_argument("--no-peer", action="store_true", help="measure only Skate")
    parser.add_argument("--settings", type=json.loads, default={}, help="engine arguments as JSON")
    parser.add_argument("--child", choices=["skate", "transformers"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    config = CONFIG
    if options.tiny:
        global REQUESTS, INPUTS, OUTPUTS, LONG, STREAMS
        REQUESTS, INPUTS, OUTPUTS, LONG, STREAMS = 4, 8, 8, 64, (1, 4)
        config = TINY
    if options.child == "skate":
        print(
            json.dumps(
                asyncio.run(
                    measure_engine(options.model, config["vocab_size"], options.rounds, options.settings)
                )
            )
        )
        return
    if options.child == "transformers":
        print(json.dumps(measure_transformers(options.model, config["vocab_size"], options.rounds)))
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory(prefix="bench-llm-") as holder:
        folder = Path(holder)
        write_model(folder, config, device)
        if device == "cuda":
            torch.cuda.empty_cache()
        shared = ["--model", holder, "--rounds", str(options.rounds), *(["--tiny"] if options.tiny else [])]
        figures = {
            "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
            "torch": torch.__version__,
            "cpus": os.cpu_count(),
            "skate": run_child(["--child", "skate", "--settings", json.dumps(options.settings), *shared]),
        }
        if not options.no_peer:
            figures["transformers"] = run_child(["--child", "transformers", *shared])
            figures["ratio"] = figures["skate"]["tokens_per_s"] / figures["transformers"]["tokens_per_s"]
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
