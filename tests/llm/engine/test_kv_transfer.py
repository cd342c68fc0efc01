"""One engine computes prompts and another continues them: the tokens are those of a single engine."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skate.llm import (
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    Grammar,
    KVTransferError,
    PrefillEngine,
)
from skate.llm._engine.attention import KVCache
from skate.llm._engine.blocks import root_hash
from skate.llm._engine.model_files import open_model
from skate.llm._engine.runner import LaunchedStep, Runner
from skate.llm._engine.scheduler import Scheduler, Sequence, SequenceState, Step
from skate.llm._engine.torch_engine import TorchEngine
from tests.llm.engine.device_runners import GREEDY, PlainRequest, make_device_runner
from tests.llm.engine.engine_contract import TEXT, logprobs_in, request, tokens_in
from tests.llm.engine.models import write_adapter, write_model
from tests.llm.engine.test_random_schedules import SHARED_PREFIX, adapters, check_against_one_pass
from tests.llm.engine.tiny_models import CPU, VOCABULARY, make_runner, make_scheduler, small_decoder

SETTINGS: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "num_threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@dataclass
class Engines:
    """An engine that runs whole requests, one that prefills, and one that continues. Their blocks differ."""

    single: TorchEngine
    prefill: TorchEngine
    decode: TorchEngine

    @classmethod
    def load(cls, folder: Path, **settings: Any) -> Engines:
        return cls(
            *(TorchEngine.load(folder, {**SETTINGS, "block_size": size, **settings}) for size in (16, 8, 16))
        )

    async def close(self) -> None:
        for each in (self.single, self.prefill, self.decode):
            await each.close()

    async def split(self, asked: GenerationRequest) -> list[GenerationOutput]:
        """Run a request on two engines. The prompt is pickled in between, as an object store does."""
        prefilled = pickle.loads(pickle.dumps(await self.prefill.prefill(asked)))
        return [piece async for piece in self.decode.generate(replace(asked, prefilled=prefilled))]

    async def whole(self, asked: GenerationRequest) -> list[GenerationOutput]:
        return [piece async for piece in self.single.generate(asked)]


@pytest.fixture
async def engines(folder: Path) -> AsyncIterator[Engines]:
    engines = Engines.load(folder)
    yield engines
    await engines.close()


def text_in(pieces: list[GenerationOutput]) -> str:
    return "".join(piece.text for piece in pieces)


async def check_that_splitting_changes_nothing(engines: Engines, asked: GenerationRequest) -> list[int]:
    whole, split = await engines.whole(asked), await engines.split(asked)
    assert tokens_in(split) == tokens_in(whole)
    assert text_in(split) == text_in(whole)
    assert logprobs_in(split) == logprobs_in(whole)
    ends = [(each[-1].finish_reason, each[-1].stop_reason, each[-1].prompt_tokens) for each in (whole, split)]
    assert ends[0] == ends[1]
    return tokens_in(split)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        pytest.param(TEXT, {}, id="greedy"),
        pytest.param(TEXT * 3, {}, id="several chunks"),
        pytest.param("a", {}, id="a prompt of one token"),
        pytest.param(TEXT * 3, {"temperature": 0.9, "top_p": 0.95, "seed": 5}, id="a seed"),
        pytest.param(TEXT * 3, {"temperature": 0.7, "seed": 3, "logprobs": 3}, id="log-probabilities"),
        pytest.param(
            TEXT, {"repetition_penalty": 1.5, "presence_penalty": 1.0, "logit_bias": {7: 2}}, id="penalties"
        ),
        pytest.param(
            TEXT,
            {"grammar": Grammar(kind="regex", text="[a-z]{3} [0-9]{8}"), "ignore_eos": False},
            id="a grammar",
        ),
        pytest.param(TEXT, {"min_tokens": 5, "ignore_eos": False, "max_tokens": 30}, id="a minimum"),
        pytest.param(TEXT, {"max_tokens": 1}, id="one token"),
        pytest.param(TEXT, {"max_tokens": None}, id="until the context is full"),
    ],
)
async def test_splitting_changes_no_token(engines: Engines, text: str, params: dict[str, Any]) -> None:
    await check_that_splitting_changes_nothing(engines, request(engines.single, text, **params))


async def test_stop_strings_and_stop_tokens_may_end_with_the_first_token(engines: Engines) -> None:
    tokens = await check_that_splitting_changes_nothing(engines, request(engines.single, max_tokens=20))
    text = engines.single.tokenizer.decode(tokens)
    for stop in (text[0], text[4:7], text[9]):
        await check_that_splitting_changes_nothing(
            engines, request(engines.single, stop=(stop,), max_tokens=20)
        )
    for token in (tokens[0], tokens[3]):
        await check_that_splitting_changes_nothing(engines, request(engines.single, stop_token_ids=(token,)))


async def test_requests_at_the_same_time_do_not_mix(engines: Engines) -> None:
    asked = [request(engines.single, TEXT[length:] * 2, seed=length, temperature=0.9) for length in range(12)]
    whole = await asyncio.gather(*map(engines.whole, asked))
    split = await asyncio.gather(*map(engines.split, asked))
    assert list(map(tokens_in, split)) == list(map(tokens_in, whole))


async def test_a_request_without_a_seed_continues_with_the_one_that_was_drawn(engines: Engines) -> None:
    asked = request(engines.single, temperature=1.0)
    prefilled = await engines.prefill.prefill(asked)
    given = replace(asked, prefilled=prefilled)
    split = [piece async for piece in engines.decode.generate(given)]
    seeded = replace(asked, params=replace(asked.params, seed=prefilled.seed))
    assert tokens_in(split) == tokens_in(await engines.whole(seeded))


async def test_both_sides_keep_their_prefix_caches(engines: Engines) -> None:
    asked = request(engines.single, TEXT * 3)
    *_, first = await engines.split(asked)
    assert first.cached_tokens == 0
    *_, second = pieces = await engines.split(asked)
    assert second.cached_tokens > 16, "the prefill engine has cached the prompt"
    assert tokens_in(pieces) == tokens_in(await engines.whole(asked))
    # What was imported is a prefix for prompts that the engine computes itself, too.
    *_, own = [piece async for piece in engines.decode.generate(asked)]
    assert own.cached_tokens > 16
    two_blocks = replace(asked, prompt=asked.prompt[:32])
    for _ in range(2):
        assert tokens_in(await engines.split(two_blocks)) == tokens_in(await engines.whole(two_blocks))
    other = replace(asked, cache_salt="other")
    *_, own = [piece async for piece in engines.decode.generate(other)]
    assert own.cached_tokens == 0


async def test_without_prefix_caches_nothing_is_shared(folder: Path) -> None:
    engines = Engines.load(folder, enable_prefix_caching=False)
    asked = request(engines.single, TEXT * 3)
    for _ in range(2):
        await check_that_splitting_changes_nothing(engines, asked)
    await engines.close()


async def test_weights_of_four_bits_are_transferred(tmp_path: Path) -> None:
    path = write_model(tmp_path, hidden_size=64, head_dim=16)
    engines = Engines.load(path, quantization="int4")
    await check_that_splitting_changes_nothing(
        engines, request(engines.single, TEXT * 2, seed=3, temperature=0.8)
    )
    plain = TorchEngine.load(path, SETTINGS)
    asked = request(plain)
    with pytest.raises(
        KVTransferError, match=r"matrix_type='float32', but this engine has matrix_type='int4'; give"
    ):
        await anext(engines.decode.generate(replace(asked, prefilled=await plain.prefill(asked))))
    await plain.close()
    await engines.close()


async def test_an_adapter_must_be_the_same_on_both_sides(engines: Engines, tmp_path: Path) -> None:
    for engine in (engines.single, engines.prefill, engines.decode):
        await engine.add_adapter("poet", str(write_adapter(tmp_path / "poet", seed=3)))
    asked = request(engines.single, TEXT * 2, adapter="poet")
    adapted = await check_that_splitting_changes_nothing(engines, asked)
    assert adapted != tokens_in(await engines.whole(request(engines.single, TEXT * 2)))
    prefilled = await engines.prefill.prefill(asked)
    with pytest.raises(
        KVTransferError, match=r"prefilled with the adapter \w{8}, but the request has no adapter"
    ):
        await anext(engines.decode.generate(replace(asked, adapter=None, prefilled=prefilled)))
    await engines.decode.add_adapter("poet", str(write_adapter(tmp_path / "other", seed=4)))
    with pytest.raises(KVTransferError, match="load the same adapter into both engines"):
        await anext(engines.decode.generate(replace(asked, prefilled=prefilled)))


async def test_new_weights_on_one_side_are_refused_and_on_both_sides_used(
    engines: Engines, tmp_path: Path
) -> None:
    other = open_model(write_model(tmp_path, seed=1))
    asked = request(engines.single)
    stale = await engines.prefill.prefill(asked)
    await engines.decode.update_weights(other.tensors())
    with pytest.raises(
        KVTransferError, match=r"computed with weights=.* update those of both, and prefill the prompt"
    ):
        await anext(engines.decode.generate(replace(asked, prefilled=stale)))
    await engines.prefill.update_weights(other.tensors())
    await engines.single.update_weights(other.tensors())
    await check_that_splitting_changes_nothing(engines, asked)


async def test_weights_that_are_replaced_before_the_import_make_the_prompt_be_computed(
    engines: Engines, tmp_path: Path
) -> None:
    other = open_model(write_model(tmp_path, seed=1))
    asked = request(engines.single)
    prefilled = await engines.prefill.prefill(asked)
    await engines.decode.pause()
    pieces = engines.decode.generate(replace(asked, prefilled=prefilled))
    first = await anext(pieces)
    await engines.decode.update_weights(other.tensors())
    await engines.decode.resume()
    rest = [piece async for piece in pieces]
    await engines.single.update_weights(other.tensors())
    continued = replace(
        asked, prompt=[*asked.prompt, *first.tokens], params=replace(asked.params, max_tokens=11)
    )
    assert tokens_in(rest) == tokens_in(await engines.whole(continued))


async def test_weights_that_are_replaced_during_prefill_are_refused(engines: Engines, tmp_path: Path) -> None:
    other = open_model(write_model(tmp_path, seed=1))
    launch = engines.prefill._loop._launch
    updates: list[asyncio.Task[int]] = []
    loop = asyncio.get_running_loop()

    def launch_and_update(step: Step) -> None:
        launch(step)
        if not updates:
            decoder = engines.prefill._model.make_decoder(other.tensors())
            engines.prefill._loop._commands.put(lambda: engines.prefill._model.replace_weights(decoder))
            updates.append(loop.create_future())  # type: ignore[arg-type]  # marks that it was done

    engines.prefill._loop._launch = launch_and_update  # type: ignore[method-assign]
    with pytest.raises(KVTransferError, match="the weights were replaced while the prompt was computed"):
        await engines.prefill.prefill(request(engines.single, TEXT * 4))


async def test_a_sleeping_engine_imports_when_it_wakes_up(engines: Engines) -> None:
    asked = request(engines.single)
    prefilled = await engines.prefill.prefill(asked)
    await engines.decode.sleep()
    pieces = engines.decode.generate(replace(asked, prefilled=prefilled))
    first = await anext(pieces)
    await engines.decode.wake_up()
    assert tokens_in([first, *[piece async for piece in pieces]]) == tokens_in(await engines.whole(asked))


async def test_a_prompt_must_be_the_one_that_was_prefilled(engines: Engines) -> None:
    asked = request(engines.single)
    prefilled = await engines.prefill.prefill(asked)
    with pytest.raises(KVTransferError, match="give the request that was prefilled"):
        await anext(engines.decode.generate(replace(asked, prompt=[1, 2, 3], prefilled=prefilled)))
    with pytest.raises(KVTransferError, match="has none for the first token"):
        await anext(
            engines.decode.generate(
                replace(asked, params=replace(asked.params, logprobs=1), prefilled=prefilled)
            )
        )
    cut = replace(prefilled, keys_values=prefilled.keys_values[:, :, :-1])
    with pytest.raises(KVTransferError, match="have the shape"):
        await anext(engines.decode.generate(replace(asked, prefilled=cut)))
    assert tokens_in(await engines.split(asked))


async def test_aborts_on_either_side_free_the_blocks(engines: Engines) -> None:
    asked = request(engines.single, TEXT * 4, max_tokens=100)
    await engines.prefill.pause()
    waiting = asyncio.create_task(engines.prefill.prefill(asked))
    aborted = asyncio.create_task(engines.prefill.prefill(replace(asked, request_id="aborted")))
    while await engines.prefill._loop.call(lambda: engines.prefill._loop.request_count) < 2:
        pass
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await engines.prefill.abort("aborted")
    with pytest.raises(KVTransferError, match="aborted before its prompt was computed"):
        await aborted
    await engines.prefill.resume()
    prefilled = await engines.prefill.prefill(asked)
    pieces = engines.decode.generate(replace(asked, prefilled=prefilled))
    for _ in range(5):
        await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]
    for engine in (engines.prefill, engines.decode):
        await engine._loop.call(lambda: None)  # the abort has arrived before
        assert engine._loop.request_count == 0
        pool = engine._model.scheduler.pool
        assert pool.free_count == pool.count


async def test_the_timing_has_the_parts_of_both_engines(engines: Engines) -> None:
    asked = request(engines.single, TEXT * 3)
    *_, last = await engines.split(asked)
    assert last.timing is not None
    assert last.timing.transfer > 0
    assert last.timing.prefill > 0
    assert last.timing.decode > 0
    assert last.finish_reason is FinishReason.LENGTH
    *_, alone = await engines.whole(asked)
    assert alone.timing is not None
    assert alone.timing.transfer == 0


async def test_the_keys_and_values_may_be_read_only(engines: Engines) -> None:
    """As those in shared memory are."""
    asked = request(engines.single)
    prefilled = await engines.prefill.prefill(asked)
    prefilled.keys_values.flags.writeable = False
    pieces = [piece async for piece in engines.decode.generate(replace(asked, prefilled=prefilled))]
    assert tokens_in(pieces) == tokens_in(await engines.whole(asked))


async def test_an_engine_reports_which_prefixes_it_has_cached(engines: Engines) -> None:
    asked = request(engines.single, TEXT * 3, max_tokens=1)
    assert (await engines.single.cached_prefixes()).count(asked.prompt) == 0
    await engines.whole(asked)
    cached = await engines.single.cached_prefixes()
    assert cached.count(asked.prompt) == len(asked.prompt) // 16
    assert cached.count([1, *asked.prompt]) == cached.count(asked.prompt, "salt") == 0
    await engines.single.reset_prefix_cache()
    assert (await engines.single.cached_prefixes()).blocks == b""


async def test_the_embedded_engine_can_prefill(engines: Engines) -> None:
    assert isinstance(engines.single, PrefillEngine)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_keys_and_values_keep_their_bits_in_other_blocks(dtype: torch.dtype) -> None:
    shape = small_decoder().config
    one, other = (KVCache(shape, 8, size, dtype, CPU) for size in (4, 3))
    for layer in range(shape.num_layers):
        for cached in one.layer(layer):
            cached.copy_(torch.randn(cached.shape))
    values = one.read([5, 2, 7], 10).values
    other.write([6, 0, 1, 3], 0, 6, values)
    other.write([6, 0, 1, 3], 6, 4, values)
    assert np.array_equal(other.read([6, 0, 1, 3], 10).values, values)
    expected = one.layer(1)[0].view(8, 4, *one.layer(1)[0].shape[1:])[[5, 2, 7]].flatten(0, 1)[:10]
    found = other.layer(1)[0].view(8, 3, *expected.shape[1:])[[6, 0, 1, 3]].flatten(0, 1)[:10]
    assert torch.equal(found, expected)


# ------------------------------------------------------------ random schedules


@dataclass
class Side:
    """A scheduler with its runner and the steps that it has launched."""

    scheduler: Scheduler
    runner: Runner
    cache: KVCache
    requests: dict[Sequence, PlainRequest] = field(default_factory=dict)
    launched: deque[tuple[Step, LaunchedStep]] = field(default_factory=deque)

    def add(self, sequence: Sequence, asked: PlainRequest) -> None:
        self.requests[sequence] = asked
        self.scheduler.add(sequence)

    @property
    def is_busy(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting or self.launched)

    def advance(self, imported: dict[Sequence, np.ndarray[Any, Any]]) -> list[tuple[Sequence, int]]:
        """Plan and launch a step, and return the tokens of the oldest one if it is time."""
        step = self.scheduler.plan()
        if step is not None:
            for each in step.imports:
                self.cache.write(each.sequence.blocks, each.start, each.count, imported[each.sequence])
            asked = [self.requests[row.sequence] for row in step.rows]
            self.launched.append((step, self.runner.launch(step, asked)))
        if self.launched and (step is None or len(self.launched) == self.runner.depth):
            done, results = self.launched.popleft()
            return self.scheduler.commit(done, results.wait().tokens)
        return []


def make_side(rng: random.Random, kind: str) -> Side:
    block_size = rng.choice((1, 2, 4, 8))
    blocks = -(-37 // block_size) + rng.randrange(3)
    scheduler = make_scheduler(
        blocks,
        block_size=block_size,
        max_sequences=rng.randint(2, 6),
        max_step_tokens=rng.choice((6, 9, 40)),
        prefix_caching=rng.random() < 0.8,
    )
    runner: Any = (
        make_runner(small_decoder(), scheduler)
        if kind == "cpu"
        else make_device_runner(small_decoder(), scheduler, blocks)
    )
    return Side(scheduler, runner, runner._cache)


@dataclass
class Counts:
    """What happened in the schedules."""

    imports: int = 0
    preempted_imports: int = 0
    aborts: int = 0


def run_split_schedule(seed: int, kind: str, counts: Counts) -> None:
    """Run random requests on two sides with random limits, some of which are aborted on either side."""
    rng = random.Random(seed)
    prefill, decode = make_side(rng, kind), make_side(rng, kind)
    to_come = []
    outputs: dict[Sequence, int] = {}
    for number in range(rng.randint(1, 6)):
        prompt = SHARED_PREFIX[: rng.choice((0, 5, 12))]
        prompt = prompt + [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))]
        asked = replace(GREEDY, adapter=rng.choice((None, *adapters(CPU))) if rng.random() < 0.3 else None)
        root, order = root_hash(asked.adapter and asked.adapter.name), (rng.randrange(2), number)
        sequence = Sequence(prompt, max_tokens=2, root=root, order=order, needs_last_token=True)
        outputs[sequence] = rng.randint(2, 12)
        to_come.append((sequence, asked))
    transferred: list[tuple[Sequence, PlainRequest]] = []
    imported: dict[Sequence, np.ndarray[Any, Any]] = {}
    decoded: list[Sequence] = []
    while to_come or transferred or prefill.is_busy or decode.is_busy:
        if to_come and rng.random() < 0.5:
            prefill.add(*to_come.pop())
        if transferred and rng.random() < 0.5:
            decode.add(*transferred.pop(rng.randrange(len(transferred))))
        for side in (prefill, decode):
            live = [each for each in side.requests if each.state is not SequenceState.FINISHED]
            if live and rng.random() < 0.01:
                side.scheduler.finish(rng.choice(live))
                counts.aborts += 1
        for sequence, _ in prefill.advance({}):
            if sequence.state is not SequenceState.RUNNING:
                continue  # its blocks were given away while its token was in flight
            continued = Sequence(
                sequence.tokens[: sequence.prompt_length],
                max_tokens=outputs[sequence],
                root=sequence.root,
                order=sequence.order,
                needs_last_token=kind == "cpu" or rng.random() < 0.3,
                first_token=sequence.tokens[sequence.prompt_length],
            )
            imported[continued] = prefill.cache.read(sequence.blocks, sequence.prompt_length).values
            transferred.append((continued, prefill.requests[sequence]))
            prefill.scheduler.finish(sequence)
        for sequence, _ in decode.advance(imported):
            if sequence.generated >= sequence.max_tokens:
                decode.scheduler.finish(sequence)
                decoded.append(sequence)
    for side in (prefill, decode):
        assert side.scheduler.pool.free_count == side.scheduler.pool.count
    counts.imports += sum(not each.importable for each in imported)
    counts.preempted_imports += sum(bool(each.preemptions) for each in decoded)
    for sequence in decoded:
        check_against_one_pass(sequence, decode.requests[sequence].adapter)


@pytest.mark.parametrize(("kind", "schedules"), [("cpu", 60), ("ahead", 30)])
def test_every_token_is_the_one_that_a_single_pass_gives(kind: str, schedules: int) -> None:
    counts = Counts()
    for seed in range(schedules):
        try:
            run_split_schedule(seed, kind, counts)
        except Exception as error:
            error.add_note(f"in the schedule with seed {seed}")
            raise
    assert counts.imports > schedules, counts
    assert counts.preempted_imports > schedules // 10, counts
    assert counts.aborts > 3, counts


async def test_a_prompt_that_is_preempted_with_its_token_in_flight_is_computed_again(
    engines: Engines,
) -> None:
    """As happens on a GPU, where a step is planned before the token of the previous one is known."""
    engine = engines.prefill
    scheduler, finish_step = engine._model.scheduler, engine._loop._finish_step
    preemptions = 0

    def preempt_and_finish_step() -> None:
        nonlocal preemptions
        (row,) = engine._loop._launched[0][0].rows
        if row.samples and not preemptions:
            preemptions += 1
            scheduler._preempt(row.sequence)
            scheduler.forget_prefixes()
        finish_step()

    engine._loop._finish_step = preempt_and_finish_step  # type: ignore[method-assign]
    for params in ({}, {"logprobs": 2}, {"grammar": Grammar(kind="regex", text="[a-z]{3} [0-9]{8}")}):
        preemptions = 0
        asked = request(engines.single, TEXT * 2, **params)
        assert tokens_in(await engines.split(asked)) == tokens_in(await engines.whole(asked))
        assert preemptions == 1


def test_the_first_token_of_an_imported_prompt_needs_no_step() -> None:
    scheduler = make_scheduler(8)
    imported = Sequence(range(6), max_tokens=3, first_token=7)
    scheduler.add(imported)
    step = scheduler.plan()
    assert step is not None
    assert [(each.sequence, each.start, each.count) for each in step.imports] == [(imported, 0, 6)]
    assert [(row.start, row.count, row.output_position) for row in step.rows] == [(6, 1, 1)]
    scheduler.commit(step, [8])
    assert imported.tokens == [0, 1, 2, 3, 4, 5, 7, 8]
    later = Sequence([*range(6), 9], max_tokens=2, order=(0, 1), first_token=7)
    scheduler.add(later)
    step = scheduler.plan()
    assert step is not None
    assert [(each.start, each.count) for each in step.imports] == [(4, 3)], "a cached block is not imported"


def test_an_import_is_forgotten_with_the_weights() -> None:
    scheduler = make_scheduler(8)
    scheduler.add(Sequence(range(6), max_tokens=3, first_token=7))
    scheduler.forget_imports()
    step = scheduler.plan()
    assert step is not None
    assert step.imports == ()
    assert [(row.start, row.count, row.output_position) for row in step.rows] == [(0, 7, 1)]
