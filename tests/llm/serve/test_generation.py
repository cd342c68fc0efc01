"""The events of a stream."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.llm import GenerationOutput, SamplingParams
from skate.serve.llm._protocol.chat import ChatCompletionRequest
from skate.serve.llm._protocol.completions import (
    CompletionChoice,
    CompletionRequest,
    CompletionStreamResponse,
)
from skate.serve.llm._server.chat import ChatRun, Piece, _ChunkWriter
from skate.serve.llm._server.generation import ChunkTemplate, event, samples_of, sampling_params
from skate.serve.llm._server.text_splitters import Part, TextPart
from tests.llm.serve.scripted import ScriptedEngine


def chunk(text: str, id: str, model: str, created: int) -> CompletionStreamResponse:
    choice = CompletionChoice(index=0, text=text)
    return CompletionStreamResponse(id=id, created=created, model=model, choices=[choice])


IDS = ["cmpl-1", ChunkTemplate.ID, ChunkTemplate.TEXT, '"\\u0000"', "-1"]


@given(text=st.text(), id=st.sampled_from(IDS), model=st.sampled_from(["tiny", *IDS]))
def test_a_template_gives_the_event_of_the_chunk(text: str, id: str, model: str) -> None:
    template = ChunkTemplate(chunk(ChunkTemplate.TEXT, ChunkTemplate.ID, model, ChunkTemplate.CREATED))
    filled = template.bind(id, 7).fill(text)
    assert json.loads(filled.removeprefix("data: ")) == json.loads(chunk(text, id, model, 7).to_json())
    assert filled.count("\n") == event("{}").count("\n")  # a line break in the text would end the event


@given(
    parts=st.lists(st.builds(TextPart, st.text(min_size=1), st.booleans()), max_size=1),
    user=st.sampled_from([None, "me"]),
    begins=st.booleans(),
)
def test_an_event_of_text_is_the_event_of_the_chunk(
    parts: list[Part], user: str | None, begins: bool
) -> None:
    request = ChatCompletionRequest.parse({"messages": [{"role": "user", "content": "hi"}], "user": user})
    run = ChatRun(Mock(), request, None, None)
    piece = Piece(0, parts, GenerationOutput(text="", tokens=()))
    writers = [_ChunkWriter(run, "tiny"), _ChunkWriter(run, "tiny")]
    writers[1]._base.created = writers[0]._base.created
    if not begins:
        for writer in writers:
            writer.chunk(piece)
    filled = writers[0].text_event(piece)
    if begins and user:
        assert filled is None  # the first chunk lists the fields that have no effect
        return
    if not begins and not parts:
        return  # nothing is sent
    assert filled is not None
    assert json.loads(filled.removeprefix("data: ")) == json.loads(writers[1].chunk(piece).to_json())


def test_samples_have_their_own_seeds_and_ids() -> None:
    request = CompletionRequest(prompt="x", n=3)
    first, second, third = samples_of(request, "mine", [1], SamplingParams(seed=2**63 - 1), None)
    assert [each.params.seed for each in (first, second, third)] == [2**63 - 1, 0, 1]
    again = next(samples_of(request, "mine", [1], SamplingParams(seed=-1), None))
    assert again.params.seed == 2**63 - 1
    assert len({each.request_id for each in (first, second, third, again)}) == 4


def test_a_request_replaces_the_defaults_of_the_model() -> None:
    engine = ScriptedEngine(sampling_defaults={"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})
    params = sampling_params(engine, CompletionRequest(prompt="x", temperature=0, top_p=0.5))
    assert (params.temperature, params.top_p, params.top_k) == (0, 0.5, 20)
    assert params.repetition_penalty == 1.1
    assert params.min_p == 0


@pytest.mark.parametrize(("given", "used"), [({}, 8), ({"max_tokens": 5}, 5), ({"max_tokens": 9}, 8)])
def test_the_length_of_the_model_s_defaults_limits_every_request(given: dict[str, int], used: int) -> None:
    engine = ScriptedEngine(sampling_defaults={"max_tokens": 8})
    request = ChatCompletionRequest.parse({"messages": [{"role": "user", "content": "hi"}], **given})
    assert sampling_params(engine, request).max_tokens == used
