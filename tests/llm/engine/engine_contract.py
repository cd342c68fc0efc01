"""What every engine does: tests that run on the embedded engine and on vLLM.

A test module has a fixture `engine` with the model of the fixture `folder`, of at most 256 tokens, and a subclass of
`EngineContract`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from skate.llm import (
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    Grammar,
    SamplingParams,
    TokenLogprob,
)
from tests.llm.engine.models import write_adapter, write_model

TEXT = "The quick brown fox jumps over the lazy dog"
_numbers = itertools.count()


def request(engine: Any, text: str = TEXT, *, adapter: str | None = None, **params: Any) -> GenerationRequest:
    params = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True, **params}
    return GenerationRequest(
        request_id=str(next(_numbers)),
        prompt=engine.tokenizer.encode(text),
        params=SamplingParams(**params),
        adapter=adapter,
    )


async def pieces_of(engine: Any, text: str = TEXT, **params: Any) -> list[GenerationOutput]:
    return [piece async for piece in engine.generate(request(engine, text, **params))]


async def text_of(engine: Any, text: str = TEXT, **params: Any) -> str:
    return "".join(piece.text for piece in await pieces_of(engine, text, **params))


def tokens_in(pieces: list[GenerationOutput]) -> list[int]:
    return [token for piece in pieces for token in piece.tokens]


def logprobs_in(pieces: list[GenerationOutput]) -> list[TokenLogprob]:
    return [logprob for piece in pieces for logprob in piece.logprobs or ()]


def greedy_tokens(model: Any, prompt: list[int]) -> list[int]:
    tokens: list[int] = list(prompt)
    with torch.inference_mode():
        for _ in range(12):
            tokens.append(int(model.eval()(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


class EngineContract:
    """The tests. `engine` has the type Any, because the engines have methods beyond the protocol."""

    MODEL: ClassVar[dict[str, Any]] = {"hidden_size": 48}  # of the fixture `folder`

    def write_adapter(self, folder: Path, **settings: Any) -> Path:
        return write_adapter(folder, hidden=self.MODEL["hidden_size"], **settings)

    async def test_a_prompt_is_continued_with_the_tokens_of_transformers(
        self, engine: Any, folder: Path
    ) -> None:
        from transformers import AutoModelForCausalLM

        prompt = engine.tokenizer.encode(TEXT)
        expected = greedy_tokens(AutoModelForCausalLM.from_pretrained(folder), prompt)
        pieces = await pieces_of(engine)
        assert tokens_in(pieces) == expected
        assert "".join(piece.text for piece in pieces) == engine.tokenizer.decode(expected)

    async def test_the_last_piece_says_how_the_request_ended(self, engine: Any) -> None:
        *others, last = await pieces_of(engine)
        assert all(piece.finish_reason is None for piece in others)
        assert last.finish_reason is FinishReason.LENGTH
        assert last.prompt_tokens == len(engine.tokenizer.encode(TEXT))
        assert last.timing is not None
        assert min(last.timing.queue, last.timing.prefill, last.timing.decode) >= 0
        assert last.timing.prefill + last.timing.decode > 0

    async def test_without_max_tokens_the_context_is_filled(self, engine: Any) -> None:
        *_, last = pieces = await pieces_of(engine, max_tokens=None)
        assert last.prompt_tokens + len(tokens_in(pieces)) == engine.max_model_len
        assert last.finish_reason is FinishReason.LENGTH

    async def test_requests_beside_it_change_no_token(self, engine: Any) -> None:
        params = {"temperature": 0.9, "top_p": 0.95, "seed": 5}
        alone = await text_of(engine, **params)
        others = [text_of(engine, TEXT[:length], seed=length, temperature=1.0) for length in range(3, 23)]
        together = await asyncio.gather(text_of(engine, **params), *others)
        assert together[0] == alone
        assert len(set(together)) > 10

    async def test_a_seed_repeats_a_text_and_no_seed_does_not(self, engine: Any) -> None:
        for seed in (1, -1, 2**70):
            first = await text_of(engine, temperature=1.0, seed=seed)
            assert await text_of(engine, temperature=1.0, seed=seed) == first
        assert len({await text_of(engine, temperature=1.0) for _ in range(4)}) > 1

    async def test_the_most_probable_token_is_all_that_is_left_by_each_limit(self, engine: Any) -> None:
        greedy = await text_of(engine)
        for limit in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
            assert await text_of(engine, temperature=1.0, **limit) == greedy

    async def test_penalties_and_biases_change_the_tokens(self, engine: Any) -> None:
        plain = tokens_in(await pieces_of(engine, max_tokens=24))
        assert len(set(plain)) < 24
        for penalty in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 2.0}):
            assert tokens_in(await pieces_of(engine, max_tokens=24, **penalty)) != plain
        biased = tokens_in(await pieces_of(engine, logit_bias={7: 100, 8: 99}))
        assert biased == [7] * 12
        assert 7 not in tokens_in(await pieces_of(engine, logit_bias={7: -100}))

    async def test_a_stop_string_ends_the_text_before_it(self, engine: Any) -> None:
        whole = await text_of(engine, max_tokens=30)
        stop = whole[7:10]
        *_, last = pieces = await pieces_of(engine, max_tokens=30, stop=(stop,))
        assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
        assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, stop)

    async def test_a_stop_token_ends_the_request(self, engine: Any) -> None:
        tokens = tokens_in(await pieces_of(engine))
        *_, last = pieces = await pieces_of(engine, stop_token_ids=(tokens[4],))
        assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, tokens[4])
        end = tokens.index(tokens[4])
        assert tokens_in(pieces) == tokens[: end + 1]
        assert "".join(piece.text for piece in pieces) == engine.tokenizer.decode(tokens[:end])

    async def test_the_end_of_sequence_token_ends_the_request(self, engine: Any) -> None:
        (eos,) = engine.tokenizer.eos_token_ids
        (only,) = await pieces_of(engine, ignore_eos=False, logit_bias={eos: 100})
        assert (only.text, only.tokens, only.finish_reason) == ("", (eos,), FinishReason.STOP)
        assert only.stop_reason is None
        *_, last = pieces = await pieces_of(engine, ignore_eos=False, logit_bias={eos: 100}, min_tokens=3)
        assert len(tokens_in(pieces)) == 4
        assert last.finish_reason is FinishReason.STOP
        *_, last = await pieces_of(engine, logit_bias={eos: 100})
        assert last.finish_reason is FinishReason.LENGTH

    async def test_special_tokens_are_part_of_the_text_if_asked_for(self, engine: Any) -> None:
        (eos,) = engine.tokenizer.eos_token_ids
        params = {"logit_bias": {eos: 100}, "max_tokens": 2}
        assert await text_of(engine, **params) == ""
        shown = engine.tokenizer.token_text(eos)
        assert await text_of(engine, **params, skip_special_tokens=False) == shown * 2

    async def test_a_shared_prefix_is_computed_once(self, engine: Any) -> None:
        await text_of(engine, TEXT * 3)
        *_, last = await pieces_of(engine, TEXT * 3)
        assert last.cached_tokens > 16
        await engine.reset_prefix_cache()
        *_, last = await pieces_of(engine, TEXT * 3)
        assert last.cached_tokens == 0

    async def test_prompts_of_another_salt_share_no_prefix(self, engine: Any) -> None:
        prompt = engine.tokenizer.encode(TEXT * 3)
        cached = []
        for number, salt in enumerate(("mine", "yours", "mine")):
            asked = GenerationRequest(
                request_id=f"salt {number}",
                prompt=prompt,
                params=SamplingParams(max_tokens=1),
                cache_salt=salt,
            )
            cached += [piece.cached_tokens async for piece in engine.generate(asked)]
        assert cached[:2] == [0, 0]
        assert cached[2] > 16

    async def test_log_probabilities_are_those_of_the_distribution_that_was_sampled_from(
        self, engine: Any, folder: Path
    ) -> None:
        from transformers import AutoModelForCausalLM

        pieces = await pieces_of(engine, logprobs=3, temperature=0.5, seed=2, max_tokens=1)
        (found,) = logprobs_in(pieces)
        with torch.inference_mode():
            model = AutoModelForCausalLM.from_pretrained(folder).eval()
            logits = model(torch.tensor([engine.tokenizer.encode(TEXT)])).logits[0, -1]
        expected = (logits / 0.5).log_softmax(dim=-1)
        assert found.token == tokens_in(pieces)[0]
        assert found.logprob == pytest.approx(float(expected[found.token]), abs=1e-3)
        best = expected.topk(3)
        assert [token for token, _ in found.top] == best.indices.tolist()
        assert [value for _, value in found.top] == pytest.approx(best.values.tolist(), abs=1e-3)

    async def test_log_probabilities_come_with_each_token(self, engine: Any) -> None:
        pieces = await pieces_of(engine, logprobs=3)
        assert [found.token for found in logprobs_in(pieces)] == tokens_in(pieces)
        for found in logprobs_in(pieces):
            assert found.top[0] == (found.token, found.logprob)
            assert len(found.top) == 3
        assert all(found.top == () for found in logprobs_in(await pieces_of(engine, logprobs=0)))
        assert all(piece.logprobs is None for piece in await pieces_of(engine))

    async def test_leaving_the_loop_aborts_the_request(self, engine: Any) -> None:
        asked = request(engine, max_tokens=200)
        async with aclosing(engine.generate(asked)) as pieces:
            async for _ in pieces:
                break
        await engine.check_health()
        await engine.reset_prefix_cache()  # has passed through the engine after the abort
        *_, last = [piece async for piece in engine.generate(asked)]  # its id is free again
        assert last.finish_reason is FinishReason.LENGTH

    async def test_a_request_is_aborted_by_its_id(self, engine: Any) -> None:
        asked = request(engine, max_tokens=200)
        reasons = []
        async for piece in engine.generate(asked):
            reasons.append(piece.finish_reason)
            await engine.abort(asked.request_id)
        assert reasons[-1] is FinishReason.ABORT
        await engine.abort("unknown")

    async def test_json_follows_its_schema(self, engine: Any) -> None:
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
            "required": ["n", "ok"],
            "additionalProperties": False,
        }
        grammar = Grammar(kind="json_schema", text=json.dumps(schema))
        texts = await asyncio.gather(
            *(
                text_of(engine, grammar=grammar, temperature=1.0, seed=seed, max_tokens=180, ignore_eos=False)
                for seed in range(5)
            )
        )
        for text in texts:
            assert set(json.loads(text)) == {"n", "ok"}

    async def test_any_json_object_begins_with_a_brace(self, engine: Any) -> None:
        text = await text_of(engine, grammar=Grammar(kind="json"), temperature=1.0, seed=1)
        assert text.startswith("{")

    @pytest.mark.parametrize(
        ("grammar", "expected"),
        [
            (Grammar(kind="regex", text="(ab|cd){3}x?"), "(ab|cd){3}x?"),
            (Grammar(kind="lark", text='start: "yes" | "no"'), "yes|no"),
        ],
    )
    async def test_text_follows_a_grammar(self, engine: Any, grammar: Grammar, expected: str) -> None:
        text = await text_of(engine, grammar=grammar, temperature=1.0, ignore_eos=False, max_tokens=40)
        assert re.fullmatch(expected, text)

    @pytest.mark.parametrize(
        "grammar",
        [
            Grammar(kind="regex", text="(unclosed"),
            Grammar(kind="json_schema", text="{no json"),
            Grammar(kind="json_schema", text='{"type": "nonsense"}'),
            Grammar(kind="lark", text="start: missing_rule"),
        ],
    )
    async def test_a_bad_grammar_fails_its_request_alone(self, engine: Any, grammar: Grammar) -> None:
        good = asyncio.create_task(text_of(engine))
        with pytest.raises(ValueError, match=r"grammar|Grammar|JSON|json"):
            await text_of(engine, grammar=grammar)
        assert await good

    @pytest.mark.parametrize(
        ("text", "params", "message"),
        [
            ("x" * 400, {}, r"the prompt has \d+ tokens, but the context has room for 255"),
            (
                TEXT,
                {"logit_bias": {10**6: 1}},
                r"logit_bias has the token 1000000, but the vocabulary has only 401",
            ),
            (TEXT, {"adapter": "missing"}, "there is no adapter 'missing'"),
        ],
    )
    async def test_a_request_that_can_never_run_is_refused(
        self, engine: Any, text: str, params: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            await text_of(engine, text, **params)

    async def test_empty_and_foreign_prompts_are_refused(self, engine: Any) -> None:
        for prompt, message in (((), "the prompt is empty"), ((5, -1), "the prompt has the token -1")):
            with pytest.raises(ValueError, match=message):
                await anext(engine.generate(GenerationRequest(request_id="x", prompt=prompt)))

    async def test_two_running_requests_cannot_have_one_id(self, engine: Any) -> None:
        await engine.pause()
        asked = request(engine)
        first = asyncio.create_task(anext(engine.generate(asked)))
        await engine.reset_prefix_cache()  # has passed through the engine after the first
        with pytest.raises(ValueError, match="is running already"):
            await anext(engine.generate(asked))
        await engine.resume()
        assert await first

    async def test_a_paused_engine_keeps_its_requests(self, engine: Any) -> None:
        expected = await text_of(engine)
        await engine.pause()
        waiting = asyncio.create_task(text_of(engine))
        await engine.reset_prefix_cache()
        assert not waiting.done()
        await engine.resume()
        assert await waiting == expected

    async def test_new_weights_change_the_text_and_forget_the_prefixes(
        self, engine: Any, folder: Path, tmp_path: Path
    ) -> None:
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM

        prompt = engine.tokenizer.encode(TEXT * 2)
        old = tokens_in(await pieces_of(engine, TEXT * 2))
        version = engine.weights_version
        other = write_model(tmp_path / "other", seed=1, **self.MODEL)
        weights = load_file(other / "model.safetensors")
        assert await engine.update_weights(weights.items()) == version + 1
        *_, last = pieces = await pieces_of(engine, TEXT * 2)
        assert tokens_in(pieces) == greedy_tokens(AutoModelForCausalLM.from_pretrained(other), prompt) != old
        assert last.cached_tokens == 0
        await engine.update_weights(load_file(folder / "model.safetensors").items())
        assert tokens_in(await pieces_of(engine, TEXT * 2)) == old

    async def test_adapters_beside_each_other_give_what_peft_gives(
        self, engine: Any, folder: Path, tmp_path: Path
    ) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        prompt = engine.tokenizer.encode(TEXT)
        expected = {}
        for name, seed in (("first", 1), ("second", 2)):
            path = self.write_adapter(tmp_path / name, seed=seed)
            await engine.add_adapter(name, str(path))
            model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), path)
            expected[name] = greedy_tokens(model, prompt)
        base = tokens_in(await pieces_of(engine))
        assert base != expected["first"] != expected["second"] != base
        for _ in range(2):  # the second time with cached prefixes, which adapters do not share
            found = await asyncio.gather(
                pieces_of(engine, adapter="first"), pieces_of(engine, adapter="second")
            )
            assert list(map(tokens_in, found)) == [expected["first"], expected["second"]]
        assert tokens_in(await pieces_of(engine)) == base
        await engine.remove_adapter("first")
        with pytest.raises(ValueError, match="there is no adapter 'first'"):
            await text_of(engine, adapter="first")
        with pytest.raises(ValueError, match="there is no adapter 'first'"):
            await engine.remove_adapter("first")

    async def test_a_request_without_an_adapter_runs_beside_one_with_it(
        self, engine: Any, tmp_path: Path
    ) -> None:
        await engine.add_adapter("poet", str(self.write_adapter(tmp_path, seed=5)))
        expected = [tokens_in(await pieces_of(engine, adapter=name)) for name in ("poet", None)]
        found = await asyncio.gather(*(pieces_of(engine, adapter=name) for name in ("poet", None)))
        await engine.remove_adapter("poet")
        assert list(map(tokens_in, found)) == expected

    async def test_an_adapter_is_replaced_by_another_of_its_name(self, engine: Any, tmp_path: Path) -> None:
        texts = []
        for seed in (3, 4):
            await engine.add_adapter("poet", str(self.write_adapter(tmp_path / str(seed), seed=seed)))
            texts.append(await text_of(engine, TEXT * 2, adapter="poet"))
        assert texts[0] != texts[1]
        await engine.remove_adapter("poet")

    @pytest.mark.parametrize(("settings", "inputs"), [({"peft_type": "IA3"}, 48), ({}, 47)])
    async def test_an_adapter_that_does_not_fit_is_refused(
        self, engine: Any, tmp_path: Path, settings: dict[str, Any], inputs: int
    ) -> None:
        path = self.write_adapter(tmp_path, seed=0, inputs=inputs, **settings)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            await engine.add_adapter("bad", str(path))
        with pytest.raises(FileNotFoundError):
            await engine.add_adapter("missing", str(tmp_path / "missing"))
        assert await text_of(engine)

    async def test_a_healthy_engine_says_so_and_describes_itself(self, engine: Any) -> None:
        await engine.check_health()
        assert f"context of {engine.max_model_len} tokens" in engine.describe()
