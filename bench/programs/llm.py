"""Generating text on a CPU."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import llm_model
import meter

from skate.llm import GenerationRequest, SamplingParams, load_engine

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


job.run(llm_16, llm_16_int4)
