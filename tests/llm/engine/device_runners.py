"""The runner of a GPU: on the CPU, with attention that is written as plainly as possible, and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from skate.llm._engine.adapters import Adapter
from skate.llm._engine.api import SamplingParams
from skate.llm._engine.attention import KVCache
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.gpu_attention import QueryBatch
from skate.llm._engine.gpu_runner import GpuRunner
from skate.llm._engine.model_config import ModelConfig
from skate.llm._engine.rope import rotate
from skate.llm._engine.sampler import RequestSampler
from skate.llm._engine.scheduler import Scheduler
from skate.llm._engine.step_graphs import Inputs, Outputs, StepGraphs
from tests.llm.engine.tiny_models import CPU, small_decoder


class PlainAttention:
    """Attention of one token after another."""

    def __init__(self, config: ModelConfig, cache: KVCache, batch: QueryBatch) -> None:
        self._config = config
        self._cache = cache
        self._batch = batch

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        rotations: torch.Tensor | None,
    ) -> torch.Tensor:
        assert rotations is not None
        queries, keys = rotate(queries, rotations), rotate(keys, rotations)
        cached_keys, cached_values = self._cache.layer(layer)
        slots = self._batch.slots.long()
        cached_keys[slots], cached_values[slots] = keys, values
        output = torch.full_like(queries, float("nan"))
        starts = self._batch.starts.tolist()
        seen = set()
        for sequence, start in zip(
            self._batch.block_sequences.tolist(), self._batch.block_starts.tolist(), strict=True
        ):
            count = starts[sequence + 1] - starts[sequence]
            for new_token in range(start, min(count, start + self._batch.queries)):
                token = starts[sequence] + new_token
                length = int(self._batch.lengths[sequence]) - count + new_token + 1
                table = self._batch.tables[int(self._batch.rows[sequence])].long()
                size = self._cache.block_size
                places = torch.arange(length)
                places = table[places // size] * size + places % size
                group = self._config.num_heads // self._config.num_kv_heads
                its_keys, its_values = (
                    cached[places].repeat_interleave(group, dim=1) for cached in (cached_keys, cached_values)
                )
                scores = torch.einsum("hd,thd->ht", queries[token], its_keys) * self._config.attention_scale
                output[token] = torch.einsum("ht,thd->hd", torch.softmax(scores, dim=-1), its_values)
                seen.add(token)
        assert seen == set(range(starts[-1]))  # others are padding
        return output


@dataclass(frozen=True)
class PlainRequest:
    """What a runner needs to know of a request."""

    sampler: RequestSampler
    adapter: Adapter | None = None


GREEDY = PlainRequest(RequestSampler(SamplingParams(temperature=0), seed=0, prompt=[], stop_tokens=[]))


class PaddedSteps(StepGraphs[Any]):
    """Computes padded inputs without a graph."""

    def run(self, shape: Any, inputs: Inputs) -> Outputs:
        return self._function(shape, torch.from_numpy(inputs))


def make_device_runner(
    decoder: Decoder, scheduler: Scheduler, max_blocks: int, *, pads: bool = False
) -> GpuRunner:
    pool = scheduler.pool
    return GpuRunner(
        decoder,
        KVCache(decoder.config, pool.count + 1, pool.block_size, torch.float32, CPU),
        max_sequences=scheduler.max_sequences,
        max_blocks=max_blocks,
        make_graphs=PaddedSteps if pads else None,
        make_attention=PlainAttention,
    )


def make_gpu_runner(scheduler: Scheduler, max_blocks: int, *, use_graphs: bool) -> GpuRunner:
    device = torch.device("cuda")
    decoder, pool = small_decoder(device), scheduler.pool
    return GpuRunner(
        decoder,
        KVCache(decoder.config, pool.count + 1, pool.block_size, torch.float32, device),
        max_sequences=scheduler.max_sequences,
        max_blocks=max_blocks,
        make_graphs=StepGraphs if use_graphs else None,
    )
