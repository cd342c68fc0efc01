"""Completions: continue plain prompts, complete or as a stream."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from skate.llm import GenerationOutput, GenerationRequest, TextGenerator, Tokenizer
from skate.serve.llm._protocol.base import RawRequestInfo
from skate.serve.llm._protocol.completions import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    CompletionResponse,
    CompletionStreamResponse,
)
from skate.serve.llm._server.constraints import answer_grammar
from skate.serve.llm._server.generation import (
    ChunkTemplate,
    EventTemplate,
    Run,
    chunk_event,
    finish_reason,
    last_events,
    run_samples,
    samples_of,
    sampling_params,
)
from skate.serve.llm._server.prompts import check_context, encode_texts

__all__ = ["CompletionRun", "answer_completion", "stream_completion"]


@dataclass
class _Choice:
    """A completion under construction."""

    prompt: list[int]
    echo: str
    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: CompletionLogprobs = field(default_factory=CompletionLogprobs)
    length: int = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class _Piece:
    """The next piece of a completion.

    Args:
        index: The number of the completion.
        text: The text that the piece adds.
        output: The output of the engine.
        finish_reason: Set on the last piece of the completion.
        offset: The length of the text before the piece.
        is_first: Whether it is the first piece of the completion.
    """

    index: int
    text: str
    output: GenerationOutput
    finish_reason: str | None
    offset: int
    is_first: bool


class CompletionRun(Run[CompletionRequest]):
    """Completions that run on an engine. Call `prepare` first."""

    ID_PREFIX = "cmpl-"

    def __init__(
        self,
        engine: TextGenerator,
        request: CompletionRequest,
        adapter: str | None,
        info: RawRequestInfo | None,
    ) -> None:
        super().__init__(engine, request, adapter, info)
        self.choices: list[_Choice] = []
        self._requests: list[GenerationRequest] = []

    async def prepare(self) -> None:
        """Tokenize the prompts, and check that they fit into the context.

        Raises:
            RequestError: If the request is invalid.
        """
        request, engine = self.request, self.engine
        answer = answer_grammar(request.response_format, request.structured_outputs)
        params = sampling_params(
            engine, request, logprobs=request.logprobs, grammar=None if answer is None else answer.grammar
        )
        prompts = await encode_texts(
            engine, request.prompts, add_special_tokens=request.add_special_tokens, param="prompt"
        )
        for given, prompt in zip(request.prompts, prompts, strict=True):
            check_context(len(prompt), request.limit, engine.max_model_len, "prompt")
            self.account.add_prompt(len(prompt))
            self._requests += samples_of(request, self.id, prompt, params, self.adapter)
            echo = ""
            if request.echo:
                echo = given if isinstance(given, str) else engine.tokenizer.decode(prompt)
            self.choices += [_Choice(prompt, echo) for _ in range(request.samples)]

    def outputs(self) -> AsyncGenerator[tuple[int, GenerationOutput]]:
        """Generate the completions, and yield what the engine returns. Closing the iterator aborts them."""
        return run_samples(self.engine, self._requests)

    def add(self, index: int, output: GenerationOutput) -> _Piece:
        """Count an output, and return it as a piece of its completion."""
        self.account.add(index, output)
        choice = self.choices[index]
        is_first = not choice.length and not choice.tokens
        text = choice.echo + output.text if is_first else output.text
        piece = _Piece(index, text, output, finish_reason(output), choice.length, is_first)
        choice.length += len(text)
        choice.tokens += output.tokens
        return piece

    def choice_of(self, piece: _Piece) -> CompletionChoice:
        """Return a piece as a part of a response."""
        request, output = self.request, piece.output
        logprobs = None
        if request.logprobs is not None:
            logprobs = _logprobs(self.engine.tokenizer, output, piece.offset, request.logprobs)
        prompt = self.choices[piece.index].prompt
        return CompletionChoice(
            index=piece.index,
            text=piece.text,
            logprobs=logprobs,
            finish_reason=piece.finish_reason,
            stop_reason=output.stop_reason,
            token_ids=list(output.tokens) if request.return_token_ids else None,
            prompt_token_ids=prompt if request.return_token_ids and piece.is_first else None,
        )


def _logprobs(tokenizer: Tokenizer, output: GenerationOutput, offset: int, count: int) -> CompletionLogprobs:
    logprobs = CompletionLogprobs()
    for each in output.logprobs or ():
        text = tokenizer.token_text(each.token)
        logprobs.text_offset.append(offset)
        logprobs.tokens.append(text)
        logprobs.token_logprobs.append(each.logprob)
        # The chosen token is always listed, as in OpenAI's API.
        top = {tokenizer.token_text(token): logprob for token, logprob in each.top}
        logprobs.top_logprobs.append({**top, text: each.logprob} if count else None)
        offset += len(text)
    return logprobs


async def answer_completion(run: CompletionRun, model: str) -> CompletionResponse:
    """Return the completions of a request."""
    request = run.request
    await run.prepare()
    async with aclosing(run.outputs()) as outputs:
        async for index, output in outputs:
            piece = run.add(index, output)
            choice = run.choices[piece.index]
            choice.text.append(piece.text)
            if request.logprobs is not None:
                logprobs = _logprobs(run.engine.tokenizer, piece.output, piece.offset, request.logprobs)
                for name in CompletionLogprobs.model_fields:
                    getattr(choice.logprobs, name).extend(getattr(logprobs, name))
            if piece.finish_reason is not None:
                choice.finish_reason, choice.stop_reason = piece.finish_reason, piece.output.stop_reason
    choices = [
        CompletionChoice(
            index=index,
            text="".join(choice.text),
            logprobs=None if request.logprobs is None else choice.logprobs,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            token_ids=choice.tokens if request.return_token_ids else None,
            prompt_token_ids=choice.prompt if request.return_token_ids else None,
        )
        for index, choice in enumerate(run.choices)
    ]
    return CompletionResponse(
        id=run.id,
        model=model,
        choices=choices,
        usage=run.account.usage,
        timing=run.account.timing,
        ignored_fields=request.ignored_fields or None,
    )


@functools.lru_cache(maxsize=256)
def _template(model: str, index: int) -> ChunkTemplate:
    """Return the template of a chunk that adds text to a completion."""
    return ChunkTemplate(
        CompletionStreamResponse(
            id=ChunkTemplate.ID,
            created=ChunkTemplate.CREATED,
            model=model,
            choices=[CompletionChoice(index=index, text=ChunkTemplate.TEXT)],
        )
    )


async def stream_completion(run: CompletionRun, model: str) -> AsyncGenerator[str]:
    """Yield the completions of a request as server-sent events, each as soon as the engine has generated it."""
    request = run.request
    await run.prepare()
    base = CompletionStreamResponse(id=run.id, model=model, choices=[])
    has_only_text = not (
        request.includes_usage_so_far or request.logprobs is not None or request.return_token_ids
    )
    templates: dict[int, EventTemplate] = {}
    left = len(run.choices)
    is_first = True
    async with aclosing(run.outputs()) as outputs:
        async for index, output in outputs:
            piece = run.add(index, output)
            left -= piece.finish_reason is not None
            if piece.finish_reason is None:
                if not is_first and not piece.text and not request.return_token_ids:
                    continue
                if has_only_text and not (is_first and request.ignored_fields):
                    is_first = False
                    template = templates.get(piece.index)
                    if template is None:
                        template = _template(model, piece.index).bind(run.id, base.created)
                        templates[piece.index] = template
                    yield template.fill(piece.text)
                    continue
            chunk = base.model_copy(update={"choices": [run.choice_of(piece)]})
            if is_first:
                chunk.ignored_fields, is_first = request.ignored_fields or None, False
            yield chunk_event(chunk, run, is_last=not left)
    for text in last_events(base, run):
        yield text
