"""A deterministic engine for tests: the last message of the user says what it does.

say TEXT            generate TEXT
gate NAME TEXT      generate the first half of TEXT, and the rest after `open NAME`
open NAME           open a gate
hang NAME           generate nothing until the request is aborted
await running NAME  end as soon as `hang NAME` runs
await aborted NAME  end as soon as `hang NAME` was aborted
stick TEXT          generate TEXT, and never answer a health check again
refuse TEXT         raise ValueError before the first token
crash TEXT          generate TEXT and raise RuntimeError
die TEXT            generate TEXT and raise EngineDeadError, as all later requests and health checks do
report              generate a JSON object about the request
random              generate random tokens, as the grammar allows
TEXT                generate TEXT
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skate.llm import (
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    RequestTiming,
    TokenLogprob,
)

TEMPLATE = """{{ bos }}{% if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}{% if message.role == "user" and message.content == "reject" %}\
{{ raise_exception("no such message") }}{% endif %}<|im_start|>{{ message.role }}
{{ message.content }}{% if not (loop.last and continue_final_message) %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% endif %}"""


class SmallTokenizer:
    """A byte-level tokenizer with the tokens of ChatML."""

    has_chat_template = True

    def __init__(
        self, *, template: str = TEMPLATE, markers: Sequence[str] = (), special: Sequence[str] = ()
    ) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = Tokenizer(models.BPE(vocab={char: id for id, char in enumerate(alphabet)}, merges=[]))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens(["<|bos|>", "<|im_start|>", "<|im_end|>", *special])
        made.add_tokens(list(markers))
        self._tokenizer = made
        self._compiled = self._compile(template)
        self.vocab_size: int = made.get_vocab_size()
        self.bos_token_id: int | None = made.token_to_id("<|bos|>")
        self.eos_token_ids: tuple[int, ...] = (made.token_to_id("<|im_end|>"),)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self.bos_token_id, *tokens] if add_special_tokens else tokens  # type: ignore[list-item]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def token_text(self, token: int) -> str:
        return self.decode([token], skip_special_tokens=False)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        return self._compiled.render(
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            bos="<|bos|>",
            **variables,
        )

    def _compile(self, template: str) -> Any:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def fail(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment()
        environment.globals["raise_exception"] = fail
        return environment.from_string(template)

    @property
    def grammar_tokenizer(self) -> Any:
        from llguidance import LLTokenizer

        return LLTokenizer(self._tokenizer.to_str(), n_vocab=self.vocab_size, eos_token=self.eos_token_ids[0])


class ScriptedEngine:
    """See the module. `engine_kwargs` may set `max_model_len`, `sampling_defaults` and the tokenizer's arguments."""

    def __init__(
        self,
        *,
        max_model_len: int = 2048,
        sampling_defaults: dict[str, float] | None = None,
        **tokenizer: Any,
    ) -> None:
        self.tokenizer = SmallTokenizer(**tokenizer)
        self.max_model_len = max_model_len
        self.sampling_defaults = sampling_defaults or {}
        self._grammars = self.tokenizer.grammar_tokenizer
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._runs = asyncio.Event()
        self._runs.set()
        self._death: str | None = None
        self._seen: set[tuple[str, tuple[int, ...]]] = set()
        self._adapters: dict[str, str] = {}
        self._is_asleep = False
        self._is_stuck = False

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationOutput]:
        self._check_alive()
        if self._is_asleep:
            raise RuntimeError("a request reached an engine that sleeps")
        if request.adapter is not None and request.adapter not in self._adapters:
            raise ValueError(f"there is no adapter {request.adapter!r}")
        matcher = self._matcher(request)
        began = time.perf_counter()
        key = request.cache_salt, tuple(request.prompt)
        cached = len(request.prompt) - 1 if key in self._seen else 0
        self._seen.add(key)
        name, _, rest = self._command(request).partition(" ")
        if name == "refuse":
            raise ValueError(f"refused: {rest}")
        if name == "open":
            self.open(rest)
            rest = "opened"
        elif name == "await":
            await self._gates[rest].wait()
        elif name == "hang":
            self._gates[f"running {rest}"].set()
            try:
                await asyncio.Event().wait()
            finally:
                self._gates[f"aborted {rest}"].set()
        elif name == "stick":
            self._is_stuck = True
        elif name == "report":
            rest = json.dumps(self._report(request))
        gate, ends_with = None, ""
        if name == "gate":
            gate, _, rest = rest.partition(" ")
        if name in ("crash", "die"):
            ends_with = name
        tokens = self._random(request, matcher) if name == "random" else self._script(rest, request, matcher)
        yield_at = len(tokens) // 2
        prefilled = time.perf_counter()
        for number, output in enumerate(self._outputs(request, tokens)):
            await self._runs.wait()
            await asyncio.sleep(0)
            if gate is not None and number == yield_at:
                await self._gates[gate].wait()
            if output.finish_reason is not None:
                if ends_with == "crash":
                    raise RuntimeError("the script crashes here")
                if ends_with == "die":
                    self._death = rest
                    self._check_alive()
                timing = RequestTiming(
                    queue=0.0, prefill=prefilled - began, decode=time.perf_counter() - prefilled
                )
                yield _replace(output, cached_tokens=cached, timing=timing)
                return
            yield output

    def open(self, gate: str) -> None:
        """Open a gate."""
        self._gates[gate].set()

    def _command(self, request: GenerationRequest) -> str:
        text = self.tokenizer.decode(request.prompt, skip_special_tokens=False).removeprefix("<|bos|>")
        _, marker, after = text.rpartition("<|im_start|>user\n")
        command = after.partition("<|im_end|>")[0] if marker else text
        known = [
            "say",
            "gate",
            "open",
            "hang",
            "await",
            "stick",
            "refuse",
            "crash",
            "die",
            "report",
            "random",
        ]
        return command if command.partition(" ")[0] in known else f"say {command}"

    def _report(self, request: GenerationRequest) -> dict[str, Any]:
        params = request.params
        return {
            # Written so that the report itself has no special tokens.
            "prompt": self.tokenizer.decode(request.prompt, skip_special_tokens=False)
            .replace("<|", "[")
            .replace("|>", "]"),
            "adapter": None if request.adapter is None else self._adapters[request.adapter],
            "adapters": len(self._adapters),
            "seed": params.seed,
            "temperature": params.temperature,
            "top_k": params.top_k,
            "min_tokens": params.min_tokens,
            "logit_bias": {str(token): bias for token, bias in params.logit_bias.items()},
            "priority": request.priority,
            "cache_salt": request.cache_salt,
            "grammar": None if params.grammar is None else params.grammar.kind,
            "ignore_eos": params.ignore_eos,
            "stop_token_ids": list(params.stop_token_ids),
        }

    def _matcher(self, request: GenerationRequest) -> Any:
        from llguidance import LLMatcher

        grammar = request.params.grammar
        if grammar is None:
            return None
        made = {
            "json": lambda text: LLMatcher.grammar_from_json_schema('{"type": "object"}'),
            "json_schema": LLMatcher.grammar_from_json_schema,
            "regex": LLMatcher.grammar_from_regex,
            "lark": LLMatcher.grammar_from_lark,
        }[grammar.kind](grammar.text)
        matcher = LLMatcher(self._grammars, made)
        if matcher.get_error():
            raise ValueError(f"the grammar is invalid: {matcher.get_error()}")
        return matcher

    def _script(self, text: str, request: GenerationRequest, matcher: Any) -> list[int]:
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        if matcher is not None:
            taken = matcher.try_consume_tokens(tokens)
            if taken < len(tokens):
                read = self.tokenizer.decode(tokens[:taken], skip_special_tokens=False)
                raise ValueError(f"the grammar does not allow the script after {read!r}")
            if not matcher.is_accepting() and request.params.max_tokens is None:
                raise ValueError("the grammar does not allow the script to end here")
        return [*tokens, self.tokenizer.eos_token_ids[0]]

    def _random(self, request: GenerationRequest, matcher: Any) -> list[int]:
        from llguidance import numpy as masks

        choose = random.Random(request.params.seed)
        mask = masks.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        tokens: list[int] = []
        printable = set(self.tokenizer.encode("abc xyz\n{}[]\"':,<>/_-0123456789", add_special_tokens=False))
        while len(tokens) < 400:
            masks.fill_next_token_bitmask(matcher, mask, 0)
            allowed = [id for id in range(self.tokenizer.vocab_size) if mask[0][id // 32] >> (id % 32) & 1]
            if not allowed:
                break
            # Prefer what ends the text: a random walk would rarely.
            ending = [id for id in allowed if id == self.tokenizer.eos_token_ids[0]]
            usual = [id for id in allowed if id in printable or id > 255] or allowed
            token = ending[0] if ending and choose.random() < 0.5 else choose.choice(usual)
            tokens.append(token)
            if token in self.tokenizer.eos_token_ids:
                break
            matcher.consume_token(token)
        return tokens

    def _outputs(self, request: GenerationRequest, tokens: list[int]) -> list[GenerationOutput]:
        """Return one piece for each token; the text of a piece ends at a complete character."""
        params, eos = request.params, self.tokenizer.eos_token_ids
        limit = min(params.max_tokens or self.max_model_len, self.max_model_len - len(request.prompt))
        reason, stop_reason = FinishReason.STOP, None
        kept = tokens
        if params.ignore_eos:
            kept = [token for token in tokens if token not in eos]
            reason = FinishReason.LENGTH
        for at, token in enumerate(kept):
            if token in params.stop_token_ids:
                kept, stop_reason = kept[: at + 1], token
                break
        if len(kept) > limit:
            kept, reason, stop_reason = kept[:limit], FinishReason.LENGTH, None
        shown = [token for token in kept if token not in eos and token not in params.stop_token_ids]
        text = self.tokenizer.decode(shown, skip_special_tokens=params.skip_special_tokens)
        for stop in params.stop:
            if stop in text:
                text, reason, stop_reason = text.partition(stop)[0], FinishReason.STOP, stop
        pieces: list[GenerationOutput] = []
        done = 0
        for number in range(len(kept)):
            is_last = number == len(kept) - 1
            so_far = self.tokenizer.decode(kept[: number + 1], skip_special_tokens=params.skip_special_tokens)
            # A stop string may begin at the end, so its length is held back.
            held = max(map(len, params.stop), default=0)
            end = len(text) if is_last else min(len(so_far.rstrip("\ufffd")) - held, len(text))
            piece = text[done:end] if end > done else ""
            done = max(done, end)
            pieces.append(
                GenerationOutput(
                    text=piece,
                    tokens=(kept[number],),
                    logprobs=_logprobs(kept[number], params.logprobs),
                    finish_reason=reason if is_last else None,
                    stop_reason=stop_reason if is_last else None,
                    prompt_tokens=len(request.prompt),
                )
            )
        return pieces

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        self._check_alive()
        vectors = []
        for prompt in prompts:
            vector = [0.0] * 8
            for token in prompt:
                vector[token % 8] += 1.0
            length = sum(each * each for each in vector) ** 0.5
            vectors.append([each / length for each in vector])
        return vectors

    async def check_health(self) -> None:
        if self._is_stuck:
            await asyncio.Event().wait()
        self._check_alive()

    def _check_alive(self) -> None:
        if self._death is not None:
            raise EngineDeadError(self._death)

    async def reset_prefix_cache(self) -> None:
        self._seen.clear()

    async def add_adapter(self, name: str, path: str) -> None:
        config = json.loads((Path(path) / "adapter_config.json").read_text())
        if "tag" not in config:
            raise ValueError(f"{path} has no tag")
        self._adapters[name] = config["tag"]

    async def remove_adapter(self, name: str) -> None:
        del self._adapters[name]

    async def pause(self) -> None:
        self._runs.clear()

    async def resume(self) -> None:
        self._runs.set()

    async def sleep(self, *, weights: bool = True, kv_cache: bool = True) -> None:
        self._is_asleep = True

    async def wake_up(self) -> None:
        self._is_asleep = False

    async def close(self) -> None:
        self._death = "closed"


def _replace(output: GenerationOutput, **fields: Any) -> GenerationOutput:
    from dataclasses import replace

    return replace(output, **fields)


def _logprobs(token: int, wanted: int | None) -> tuple[TokenLogprob, ...] | None:
    if wanted is None:
        return None
    top = tuple((other, -0.5 - number) for number, other in enumerate(range(token, token + wanted)))
    return (TokenLogprob(token, -0.5, tuple((other % 256, logprob) for other, logprob in top)),)


def start(config: Any) -> ScriptedEngine:
    """Start the engine of a configuration: `llm_engine=start`."""
    options = {name: value for name, value in config.engine_kwargs.items() if name != "data_parallel_size"}
    return ScriptedEngine(**options)
