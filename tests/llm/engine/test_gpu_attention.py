"""The Triton kernels, which Triton's interpreter runs where there is no GPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.gpu_attention import GpuAttention, QueryBatch
from skate.llm._engine.gpu_kernels import FusedLayerOps
from skate.llm._engine.layer_ops import Activation, Norm, TorchLayerOps
from tests.llm.engine.tiny_models import CPU, decoder_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK_SIZE, BLOCKS = 4, 40
# Sequences of a step: the position of the first new token, the number of new tokens, and the blocks.
ROWS = (
    AttentionRow(0, 21, (3, 4, 5, 9, 10, 1)),
    AttentionRow(70, 1, tuple(range(11, 29))),
    AttentionRow(5, 3, (6, 2)),
    AttentionRow(0, 1, (0,)),
)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize(
    "family", ["llama", "mistral with a window", "gemma2"], ids=["plain", "window", "window and limit"]
)
def test_attention_equals_that_of_the_cpu(family: str, splits: int) -> None:
    decoder = decoder_of(family)
    config = decoder.config
    generator = torch.Generator().manual_seed(1)
    count = sum(row.count for row in ROWS)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    queries = random(count, config.num_heads, config.head_dim)
    keys, values = (random(count, config.num_kv_heads, config.head_dim) for _ in range(2))
    rotations = random(count, 2, config.head_dim)
    content = random(2, BLOCKS * BLOCK_SIZE, config.num_kv_heads, config.head_dim)
    results = []
    for device in (CPU, DEVICE):
        cache = KVCache(config, BLOCKS, BLOCK_SIZE, torch.float32, device)
        for cached, each in zip(cache.layer(0), content, strict=True):
            cached.copy_(each)
        attention = (
            GpuAttention(config, cache, query_batch(splits))
            if results
            else PagedAttention(config, cache, ROWS)
        )
        arguments = (each.to(device) for each in (queries, keys, values, rotations))
        attended = attention.attend(0, *arguments)
        results.append((attended.cpu(), *(each.cpu() for each in cache.layer(0))))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def query_batch(splits: int, queries: int = 4) -> QueryBatch:
    """Return the rows in the tensors that the kernels read, with tables in another order."""

    def numbers(values: object) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    width = max(len(row.blocks) for row in ROWS)
    tables = [[*row.blocks, *[0] * (width - len(row.blocks))] for row in reversed(ROWS)]
    starts = [0]
    slots, block_sequences, block_starts = [], [], []
    for number, row in enumerate(ROWS):
        starts.append(starts[-1] + row.count)
        positions = range(row.start, row.start + row.count)
        slots += [row.blocks[each // BLOCK_SIZE] * BLOCK_SIZE + each % BLOCK_SIZE for each in positions]
        for start in range(0, row.count, queries):
            block_sequences.append(number)
            block_starts.append(start)
    return QueryBatch(
        tables=numbers(tables),
        rows=numbers(list(reversed(range(len(ROWS))))),
        starts=numbers(starts),
        lengths=numbers([row.start + row.count for row in ROWS]),
        slots=numbers(slots),
        block_sequences=numbers(block_sequences),
        block_starts=numbers(block_starts),
        queries=queries,
        splits=splits,
    )


@pytest.mark.parametrize("bias", [False, True], ids=["root-mean-square norm", "layer norm"])
def test_norms_equal_those_of_torch(bias: bool) -> None:
    values, update = (torch.randn(5, 48, device=DEVICE) for _ in range(2))
    norm = Norm(torch.randn(48, device=DEVICE), torch.randn(48, device=DEVICE) if bias else None, 1e-5)
    expected, found = TorchLayerOps(), FusedLayerOps()
    torch.testing.assert_close(found.norm(values, norm), expected.norm(values, norm))
    for one, other in zip(
        found.add_norm(values, update, norm), expected.add_norm(values, update, norm), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "gelu"])
def test_gates_equal_those_of_torch(activation: Activation) -> None:
    projected = torch.randn(3, 2 * 1100, device=DEVICE)
    expected = TorchLayerOps().gate(projected, activation)
    torch.testing.assert_close(FusedLayerOps().gate(projected, activation), expected)
