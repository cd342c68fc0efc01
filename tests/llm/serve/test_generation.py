"""The events of a stream."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from skate.llm import SamplingParams
from skate.serve.llm._protocol.completions import (
    CompletionChoice,
    CompletionRequest,
    CompletionStreamResponse,
)
from skate.serve.llm._server.generation import EventTemplate, event, samples_of


def chunk(text: str, id: str = "cmpl-1", index: int = 0) -> CompletionStreamResponse:
    choice = CompletionChoice(index=index, text=text)
    return CompletionStreamResponse(id=id, created=1, model="tiny", choices=[choice])


@given(text=st.text(), id=st.sampled_from(["cmpl-1", EventTemplate.TEXT, '"\\u0000"']))
def test_a_template_gives_the_event_of_the_chunk(text: str, id: str) -> None:
    filled = EventTemplate(chunk(EventTemplate.TEXT, id)).fill(text)
    assert json.loads(filled.removeprefix("data: ")) == json.loads(chunk(text, id).to_json())
    assert filled.count("\n") == event("{}").count("\n")  # a line break in the text would end the event


def test_samples_have_their_own_seeds_and_ids() -> None:
    request = CompletionRequest(prompt="x", n=3)
    first, second, third = samples_of(request, "mine", [1], SamplingParams(seed=2**63 - 1), None)
    assert [each.params.seed for each in (first, second, third)] == [2**63 - 1, 0, 1]
    again = next(samples_of(request, "mine", [1], SamplingParams(seed=-1), None))
    assert again.params.seed == 2**63 - 1
    assert len({each.request_id for each in (first, second, third, again)}) == 4
