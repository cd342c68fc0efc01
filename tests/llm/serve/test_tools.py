"""Tool calls and structured answers: constrained by a grammar, and parsed exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.serve.llm._server.chat import ChatRun, answer_chat, stream_chat
from skate.serve.llm._server.text_splitters import ReasoningSplitter, ToolCallParser
from skate.serve.llm.openai_api_models import ChatCompletionRequest, ChatCompletionResponse
from tests.llm.serve.scripted import ScriptedEngine

MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
ENGINES = {
    "spelled": ScriptedEngine(),
    "tokens": ScriptedEngine(markers=MARKERS),
    "special": ScriptedEngine(special=MARKERS),
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TICK = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def request(text: str, **fields: Any) -> ChatCompletionRequest:
    given = {"messages": [{"role": "user", "content": text}], "tools": [WEATHER, CLOCK], **fields}
    return ChatCompletionRequest.parse(given)


async def answer(engine: ScriptedEngine, text: str, **fields: Any) -> ChatCompletionResponse:
    return await answer_chat(ChatRun(engine, request(text, **fields), None, None), "tiny")


async def chunks(engine: ScriptedEngine, text: str, **fields: Any) -> list[dict[str, Any]]:
    run = ChatRun(engine, request(text, stream=True, **fields), None, None)
    events = [each async for each in stream_chat(run, "tiny")]
    assert events[-1] == "data: [DONE]\n\n"
    return [json.loads(each.removeprefix("data: ")) for each in events[:-1]]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> ScriptedEngine:
    return ENGINES[request.param]


async def test_the_model_may_call_a_tool(engine: ScriptedEngine) -> None:
    choice = (await answer(engine, f"say I look. {CALL}")).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look. "
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert call.id.startswith("call_")


async def test_the_model_may_answer_without_a_tool(engine: ScriptedEngine) -> None:
    choice = (await answer(engine, "say just text < and <tool")).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("just text < and <tool", "stop")
    assert choice.message.tool_calls is None


async def test_a_call_that_breaks_its_schema_cannot_be_generated(engine: ScriptedEngine) -> None:
    for wrong in (
        '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"days": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": 3}}\n</tool_call>',
        "<tool_call> and so on",
    ):
        with pytest.raises(ValueError, match="the grammar does not allow the script"):
            await answer(engine, f"say {wrong}")


async def test_several_tools_can_be_called(engine: ScriptedEngine) -> None:
    choice = (await answer(engine, f"say {CALL}\n{TICK}")).choices[0]
    assert choice.message.content is None
    assert [call.function.name for call in choice.message.tool_calls or ()] == ["get_weather", "clock"]
    with pytest.raises(ValueError, match="the grammar does not allow the script"):
        await answer(engine, f"say {CALL}\n{TICK}", parallel_tool_calls=False)


async def test_a_required_call_leaves_no_room_for_text(engine: ScriptedEngine) -> None:
    called = await answer(engine, f"say {TICK}", tool_choice="required")
    assert called.choices[0].finish_reason == "tool_calls"
    with pytest.raises(ValueError, match="the grammar does not allow the script"):
        await answer(engine, "say no", tool_choice="required")


async def test_a_named_tool_is_the_only_one(engine: ScriptedEngine) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    called = await answer(engine, f"say {TICK}", tool_choice=named)
    assert (called.choices[0].message.tool_calls or [])[0].function.name == "clock"
    with pytest.raises(ValueError, match="the grammar does not allow the script"):
        await answer(engine, f"say {CALL}", tool_choice=named)


async def test_no_tool_is_called_if_none_is_chosen(engine: ScriptedEngine) -> None:
    choice = (await answer(engine, f"say {TICK}", tool_choice="none", skip_special_tokens=False)).choices[0]
    assert choice.message.content == TICK
    assert choice.message.tool_calls is None


async def test_a_stream_has_the_name_first_and_then_the_arguments(engine: ScriptedEngine) -> None:
    found = await chunks(engine, f"say Now: {CALL}")
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(delta.get("content", "") for delta in deltas) == "Now: "
    assert calls[0]["function"]["name"] == "get_weather"
    assert calls[0]["id"].startswith("call_")
    assert all("id" not in call for call in calls[1:])
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Oslo"}
    assert len(calls) > 5
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_call_that_is_cut_off_says_so(engine: ScriptedEngine) -> None:
    cut = await answer(engine, f"say {CALL}", tool_choice="required", max_tokens=50)
    assert cut.choices[0].finish_reason == "length"
    assert (cut.choices[0].message.tool_calls or [])[0].function.arguments.startswith("{")


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(ENGINES)))
async def test_whatever_is_generated_parses(seed: int, kind: str) -> None:
    choice = (await answer(ENGINES[kind], "random", tool_choice="required", seed=seed)).choices[0]
    if choice.finish_reason == "length":
        return
    assert not choice.message.content
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        arguments = json.loads(call.function.arguments)
        assert arguments.keys() <= {"city", "days"}
        assert call.function.name == "clock" or isinstance(arguments["city"], str)


async def test_tools_and_a_schema_can_be_combined(engine: ScriptedEngine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    plain = await answer(engine, 'say {"n":3}', response_format=format)
    assert plain.choices[0].message.content == '{"n":3}'
    called = await answer(engine, f"say {TICK}", response_format=format)
    assert called.choices[0].finish_reason == "tool_calls"
    with pytest.raises(ValueError, match="the grammar does not allow the script"):
        await answer(engine, "say text", response_format=format)


OUTPUTS: list[tuple[dict[str, Any], str, str]] = [
    ({"choice": ["yes", 'no "maybe"']}, 'no "maybe"', "perhaps"),
    ({"regex": r"[a-c]+/\d"}, "abc/1", "abd"),
    ({"json": {"type": "integer"}}, "42", "4x"),
    ({"json": '{"type": "boolean"}'}, "true", "1"),
    ({"json_object": True}, "{}", "[]"),
    ({"grammar": 'start: "a" b\nb: "c"'}, "ac", "ab"),
]


@pytest.mark.parametrize("thinks", [False, True])
async def test_structured_outputs_constrain_the_answer(engine: ScriptedEngine, thinks: bool) -> None:
    thought = "well, {</think>\n\n" if thinks else ""
    for outputs, right, wrong in OUTPUTS:
        fields = {
            "tools": None,
            "structured_outputs": outputs,
            "chat_template_kwargs": {"enable_thinking": thinks},
        }
        found = await answer(engine, f"say {thought}{right}", **fields)
        assert found.choices[0].message.content == right
        assert found.choices[0].message.reasoning_content == ("well, {" if thinks else None)
        with pytest.raises(ValueError, match="the grammar does not allow the script"):
            await answer(engine, f"say {thought}{wrong}", **fields)


async def test_a_thinking_model_can_be_made_to_call_a_tool(engine: ScriptedEngine) -> None:
    fields = {"tool_choice": "required", "chat_template_kwargs": {"enable_thinking": True}}
    choice = (await answer(engine, f"say what time?</think>\n{TICK}", **fields)).choices[0]
    assert choice.message.reasoning_content == "what time?"
    assert (choice.message.tool_calls or [])[0].function.name == "clock"


async def test_a_template_without_tools_is_told_about_them() -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    engine = ScriptedEngine(template=template)
    run = ChatRun(engine, request("say x"), None, None)
    await run.prepare()
    prompt = engine.tokenizer.decode(run.prompt.tokens)
    assert '"name": "get_weather"' in prompt
    assert "<tool_call>" in prompt


async def test_earlier_calls_and_results_are_part_of_the_prompt() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "time?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]
    run = ChatRun(ENGINES["spelled"], ChatCompletionRequest.parse({"messages": messages}), None, None)
    await run.prepare()
    assert "tool\n12:00" in ENGINES["spelled"].tokenizer.decode(run.prompt.tokens)


PIECES = ["<think>", "</think>", "a", "\n", "<", "think", ">", "<tool_call>", CALL, "</tool_call>", " "]


@given(st.lists(st.sampled_from(PIECES)), st.data())
def test_the_parts_of_a_text_do_not_depend_on_its_pieces(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _split(pieces) == _split([text])


def _split(pieces: list[str]) -> tuple[str, str, list[tuple[str, str]]]:
    splitter, parser = ReasoningSplitter(), ToolCallParser()
    reasoning = content = ""
    calls: list[tuple[str, str]] = []
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        found = []
        for part in splitter.feed(piece, is_last=is_last):
            if part.is_reasoning:
                reasoning += part.text
            else:
                found += list(parser.feed(part.text))
        found += list(parser.feed("", is_last=True)) if is_last else []
        for each in found:
            if hasattr(each, "text"):
                content += each.text
            elif each.name is not None:
                calls.append((each.name, each.arguments))
            else:
                calls[-1] = (calls[-1][0], calls[-1][1] + each.arguments)
    return reasoning, content, calls
