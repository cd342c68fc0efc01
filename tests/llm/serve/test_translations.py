"""The Responses API and Anthropic's Messages API."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patch a file."}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
EDIT = '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "a\\nb"}}\n</tool_call>'


def report(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_response_has_the_text_and_the_usage(client: openai.OpenAI) -> None:
    response = client.responses.create(model="tiny", input="say Hällo", instructions="Be brief.")
    assert response.output_text == "Hällo"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens == 7
    assert response.usage.input_tokens_details.cached_tokens == 0


def test_the_input_may_be_items(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="tiny",
        instructions="Be brief.",
        input=[
            {"role": "user", "content": "weather?"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "get_weather",
                "arguments": '{"city": "Oslo"}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "report"}]},
        ],
    )
    prompt = report(response.output_text)["prompt"]
    assert prompt.startswith("[bos][im_start]system\nBe brief.[im_end]")
    assert "[im_start]tool\nrain[im_end]" in prompt


def test_a_stream_has_the_items_of_the_response(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="tiny", input="say <think>hm</think>Yes.", stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response  # type: ignore[union-attr]
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert added == [item.id for item in done] == [item.id for item in final.output]
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert [item.model_dump() for item in done] == [item.model_dump() for item in final.output]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == final.output_text == "Yes."
    deltas = {event.item_id for event in events if event.type == "response.output_text.delta"}
    assert deltas == {final.output[1].id}
    for kind in ("content_part.added", "content_part.done", "output_text.done", "reasoning_text.delta"):
        assert f"response.{kind}" in kinds


def test_a_response_calls_functions(client: openai.OpenAI) -> None:
    tools: Any = [WEATHER, PATCH]
    response = client.responses.create(model="tiny", input=f"say {CALL}", tools=tools)
    call = response.output[0]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})
    events = list(
        client.responses.create(model="tiny", input=f"say {CALL}\n{EDIT}", tools=tools, stream=True)
    )
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert json.loads(arguments) == {"city": "Oslo"}
    final = events[-1].response  # type: ignore[union-attr]
    assert [item.type for item in final.output] == ["function_call", "custom_tool_call"]
    assert final.output[1].input == "a\nb"
    assert final.output[1].call_id.startswith("call_")


def test_a_response_may_be_required_to_call_a_tool(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "name": "get_weather"}
    tools: Any = [WEATHER, PATCH]
    response = client.responses.create(model="tiny", input=f"say {CALL}", tools=tools, tool_choice=choice)
    assert response.output[0].type == "function_call"
    with pytest.raises(openai.BadRequestError, match="grammar"):
        client.responses.create(model="tiny", input=f"say {EDIT}", tools=tools, tool_choice=choice)


def test_a_response_follows_a_schema(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    format: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    assert client.responses.create(model="tiny", input='say {"n":1}', text=format).output_text == '{"n":1}'
    with pytest.raises(openai.BadRequestError, match="grammar"):
        client.responses.create(model="tiny", input="say no", text=format)


def test_a_response_that_is_cut_off_is_incomplete(client: openai.OpenAI) -> None:
    response = client.responses.create(model="tiny", input="say abcdef", max_output_tokens=3)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "abc"


def test_a_response_that_fails_says_so(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="tiny", input="crash half", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None


def test_what_a_response_cannot_do_is_refused(client: openai.OpenAI) -> None:
    for fields, message in (
        ({"previous_response_id": "resp_1"}, "not stored"),
        ({"truncation": "auto"}, "nothing is truncated"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "no built-in tools"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "text only"),
        ({"include": ["file_search_call.results"]}, "cannot be included"),
        ({"model": "other"}, "does not exist"),
    ):
        with pytest.raises(openai.APIStatusError, match=message) as caught:
            client.responses.create(**{"model": "tiny", "input": "hi", **fields})  # type: ignore[call-overload]
        assert 400 <= caught.value.status_code < 500


# ------------------------------------------------------------ Anthropic's API


def message(url: str, text: str, **fields: Any) -> httpx.Response:
    body = {"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": text}], **fields}
    return httpx.post(f"{url}/v1/messages", json=body)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    blocks = [block.split("\n") for block in response.text.strip().split("\n\n")]
    for name, data in blocks:
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]
    return [json.loads(data.removeprefix("data: ")) for _, data in blocks]


def test_a_message_has_blocks_and_a_stop_reason(url: str) -> None:
    answer = message(url, "say <think>hm</think>Hi.", system="Be kind.").json()
    assert answer["type"] == "message"
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    assert answer["content"][1]["text"] == "Hi."
    assert answer["stop_reason"] == "end_turn"
    assert answer["usage"]["output_tokens"] > 0
    stopped = message(url, "say one. two", stop_sequences=[". "]).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", ". ")
    assert message(url, "say abcdef", max_tokens=2).json()["stop_reason"] == "max_tokens"


def test_a_stream_of_a_message_has_its_blocks(url: str) -> None:
    tools = [{"name": "get_weather", "input_schema": WEATHER["parameters"]}]
    events = events_of(message(url, f"say Now. {CALL}", tools=tools, stream=True))
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    starts = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert starts == ["text", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "Now. "
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"city": "Oslo"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_tool_results_are_part_of_the_conversation(url: str) -> None:
    answer = message(
        url,
        "",
        messages=[
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "rain"}],
                    },
                    {"type": "text", "text": "report"},
                ],
            },
        ],
        max_tokens=800,
    ).json()
    prompt = report(answer["content"][0]["text"])["prompt"]
    assert "[im_start]tool\nrain[im_end]\n[im_start]user\nreport[im_end]" in prompt


def test_tokens_of_a_message_are_counted(url: str) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "say x"}]}
    counted = httpx.post(f"{url}/v1/messages/count_tokens", json=body).json()
    assert counted == {"input_tokens": message(url, "say x").json()["usage"]["input_tokens"]}


def test_errors_have_anthropics_shape(url: str) -> None:
    for fields, status, kind in (
        ({"max_token": 5}, 400, "invalid_request_error"),
        ({"model": "other"}, 404, "not_found_error"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error"),
    ):
        answer = message(url, "hi", **fields)
        assert answer.status_code == status
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == kind
    assert events_of(message(url, "crash half", stream=True))[-1]["error"]["type"] == "api_error"
