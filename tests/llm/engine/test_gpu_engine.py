"""The engine on a GPU."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skate.llm import GenerationRequest, PrefillEngine, SamplingParams, load_engine
from skate.llm._engine.step_graphs import Outputs, StepGraphs
from tests.llm.engine.models import write_adapter, write_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

PROMPTS = [[5 + number, *range(20, 20 + number * 3 % 40)] for number in range(24)]
GREEDY: dict[str, Any] = {"temperature": 0}
DRAWN: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "seed": 7}
PENALISED: dict[str, Any] = {"temperature": 0.7, "frequency_penalty": 0.5, "seed": 3, "logprobs": 2}


def run(
    folder: Path, *, adapter: Path | None = None, one_by_one: bool = False, **settings: Any
) -> list[list[int]]:
    """Return the tokens of every prompt with each kind of parameters."""

    async def main() -> list[list[int]]:
        engine = load_engine(folder, **{"dtype": "float32", **settings})
        if adapter is not None:
            await engine.add_adapter("adapter", str(adapter))
        kinds = (GREEDY, DRAWN, PENALISED)

        async def stream(number: int) -> list[int]:
            params = SamplingParams(**kinds[number % 3], max_tokens=20, ignore_eos=True)
            request = GenerationRequest(
                request_id=str(number),
                prompt=PROMPTS[number],
                params=params,
                adapter="adapter" if adapter is not None and number % 2 else None,
            )
            return [token async for piece in engine.generate(request) for token in piece.tokens]

        numbers = range(len(PROMPTS))
        try:
            if one_by_one:
                return [await stream(number) for number in numbers]
            return list(await asyncio.gather(*map(stream, numbers)))
        finally:
            await engine.close()

    return asyncio.run(main())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    """The tokens that the CPU generates."""
    return run(folder, device="cpu")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enforce_eager": True},
        {"enable_prefix_caching": False},
        {"max_num_batched_tokens": 24, "max_num_seqs": 8},
        {"kv_cache_memory_bytes": 2 * 2 * 2 * 12 * 4 * 16 * 24},
    ],
    ids=["graphs", "no graphs", "no prefix cache", "parts of prompts", "preemption"],
)
def test_tokens_equal_those_of_the_cpu(
    folder: Path, expected: list[list[int]], settings: dict[str, Any]
) -> None:
    assert run(folder, **settings) == expected


def test_tokens_do_not_depend_on_other_requests(folder: Path, expected: list[list[int]]) -> None:
    assert run(folder, one_by_one=True) == expected


def test_adapters_change_the_tokens_of_their_requests_only(
    folder: Path, expected: list[list[int]], tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "adapter", seed=1)
    found = run(folder, adapter=adapter)
    assert found == run(folder, adapter=adapter, device="cpu")
    assert found[::2] == expected[::2]
    assert found[1::2] != expected[1::2]


def test_a_graph_that_is_garbage_does_not_disturb_the_recording_of_another() -> None:
    def compute(count: int, inputs: torch.Tensor) -> Outputs:
        made = [[] for _ in range(3 * gc.get_threshold()[0])]  # enough for a garbage collection
        return inputs * 2, inputs + len(made)

    def record() -> tuple[StepGraphs[int], torch.Tensor]:
        graphs = StepGraphs(compute)
        graphs.run(2, columns)
        return graphs, graphs.run(2, columns)[0]

    columns = np.ones((1, 2), dtype=np.int32)
    for _ in range(5):
        old, _ = record()
        old.itself = old  # type: ignore[attr-defined]  # only a garbage collection deletes it
        del old
        assert record()[1].tolist() == [[2, 2]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gpu_hands_prompts_over(folder: Path, dtype: str) -> None:
    """Through the memory of the host, to another engine on the GPU, and in float32 also to one on the CPU."""

    async def main() -> None:
        settings: dict[str, Any] = {"dtype": dtype, "kv_cache_memory_bytes": 2**24}
        gpu, other = (load_engine(folder, engine="torch", **settings) for _ in range(2))
        engines = [other]
        if dtype == "float32":
            engines.append(load_engine(folder, engine="torch", device="cpu"))
        assert isinstance(gpu, PrefillEngine)
        for number, (prompt, params) in enumerate(zip(PROMPTS, (GREEDY, DRAWN, PENALISED) * 8, strict=True)):
            sampling = SamplingParams(**params, max_tokens=20, ignore_eos=True)
            asked = GenerationRequest(request_id=str(number), prompt=prompt, params=sampling)
            whole = [token async for piece in gpu.generate(asked) for token in piece.tokens]
            prefilled = replace(asked, prefilled=await gpu.prefill(asked))
            for engine in engines:
                assert whole == [
                    token async for piece in engine.generate(prefilled) for token in piece.tokens
                ]
        for engine in (gpu, *engines):
            await engine.close()

    asyncio.run(main())
