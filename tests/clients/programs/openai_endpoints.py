"""Use every endpoint of a server with OpenAI's client, whatever version this interpreter has.

    python openai_endpoints.py URL ADAPTER_FOLDER

The server has the model "tiny" on the scripted engine of tests/llm/serve. Prints a JSON object: the version of the
client, and the paths that were used. A wrong answer is an AssertionError.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import openai

ROOT, ADAPTER = sys.argv[1], sys.argv[2]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
used: set[str] = set()


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def post(client: openai.OpenAI, path: str, body: dict[str, Any]) -> Any:
    """Call an endpoint that OpenAI does not have, through the client's own connection."""
    used.add(path)
    return client.with_options(base_url=ROOT).post(path, body=body, cast_to=object)


def get(client: openai.OpenAI, path: str, kind: type = object) -> Any:
    used.add(path)
    return client.with_options(base_url=ROOT).get(path, cast_to=kind)


def use_chat(client: openai.OpenAI) -> None:
    used.add("/v1/chat/completions")
    create = client.chat.completions.create
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=user("say Hällo"))
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hällo"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 7
    assert raw.headers["x-request-id"]
    several = create(model="tiny", messages=user("say x"), n=2, logprobs=True, top_logprobs=1, seed=1)
    assert [choice.message.content for choice in several.choices] == ["x", "x"]
    assert several.choices[0].logprobs.content[0].token == "x"
    chunks = list(
        create(
            model="tiny",
            messages=user("say Hällo"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hällo"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 7
    limited = create(model="tiny", messages=user("say abcdef"), max_completion_tokens=3)
    assert (limited.choices[0].message.content, limited.choices[0].finish_reason) == ("abc", "length")
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    called = create(model="tiny", messages=user(f"say {CALL}"), tools=tools, tool_choice="required")
    call = called.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert called.choices[0].finish_reason == "tool_calls"
    after = create(
        model="tiny",
        tools=tools,
        messages=[
            *user(f"say {CALL}"),
            called.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
            *user("say wet"),
        ],
    )
    assert after.choices[0].message.content == "wet"
    with client.chat.completions.stream(model="tiny", messages=user(f"say {CALL}"), tools=tools) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "get_weather"
    schema: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": NUMBER, "strict": True}}
    number = create(model="tiny", messages=user('say {"n":3}'), response_format=schema)
    assert json.loads(number.choices[0].message.content) == {"n": 3}


def use_parsed_answers(client: openai.OpenAI) -> None:
    """Let the client turn answers into objects, as its users do with pydantic."""
    from pydantic import BaseModel

    class Number(BaseModel):
        n: int

    parsed = client.chat.completions.parse(model="tiny", messages=user('say {"n":3}'), response_format=Number)
    assert parsed.choices[0].message.parsed == Number(n=3)
    response = client.responses.parse(model="tiny", input='say {"n":4}', text_format=Number)
    assert response.output_parsed == Number(n=4)


def use_completions(client: openai.OpenAI) -> None:
    used.add("/v1/completions")
    answer = client.completions.create(model="tiny", prompt=["say a", "say b"], n=2)
    assert [choice.text for choice in answer.choices] == ["a", "a", "b", "b"]
    stream = client.completions.create(model="tiny", prompt="say strömt", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "strömt"
    probable = client.completions.create(model="tiny", prompt="say ab", logprobs=1).choices[0].logprobs
    assert probable.tokens[:2] == ["a", "b"]


def use_responses(client: openai.OpenAI) -> None:
    used.add("/v1/responses")
    tools: Any = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}]
    response = client.responses.create(model="tiny", input="say Hällo", instructions="Be brief.")
    assert (response.output_text, response.status) == ("Hällo", "completed")
    events = list(client.responses.create(model="tiny", input="say Yes.", stream=True))
    assert events[-1].type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == "Yes."
    called = client.responses.create(model="tiny", input=f"say {CALL}", tools=tools, tool_choice="required")
    call = called.output[0]
    assert (call.type, json.loads(call.arguments)) == ("function_call", {"city": "Oslo"})
    after = client.responses.create(
        model="tiny",
        tools=tools,
        input=[
            *user(f"say {CALL}"),
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
            *user("say wet"),
        ],
    )
    assert after.output_text == "wet"
    with client.responses.stream(model="tiny", input="say streamed") as stream:
        assert stream.get_final_response().output_text == "streamed"


def use_embeddings(client: openai.OpenAI) -> None:
    used.add("/v1/embeddings")
    plain = client.embeddings.create(model="tiny", input=["a", "b"], encoding_format="float").data
    packed = client.embeddings.create(model="tiny", input=["a", "b"]).data  # the client asks for base64
    for one, other in zip(plain, packed, strict=True):
        assert max(abs(x - y) for x, y in zip(one.embedding, other.embedding, strict=True)) < 1e-6
    for path in ("/v1/score", "/score"):
        scores = post(client, path, {"model": "tiny", "text_1": "aaa", "text_2": ["aaa", "bbb"]})["data"]
        assert scores[0]["score"] > scores[1]["score"]
    for path in ("/v1/rerank", "/rerank"):
        body = {"model": "tiny", "query": "aaa", "documents": ["bbb", "aaa"]}
        assert [each["index"] for each in post(client, path, body)["results"]] == [1, 0]


def use_models(client: openai.OpenAI) -> None:
    used.update({"/v1/models", "/v1/models/{model:path}"})
    assert "tiny" in [model.id for model in client.models.list()]
    assert client.models.retrieve("tiny").owned_by == "skate"
    body = {"lora_name": "crimson", "lora_path": ADAPTER}
    post(client, "/v1/load_lora_adapter", body)
    try:
        assert "crimson" in [model.id for model in client.models.list()]
        report = client.chat.completions.create(model="crimson", messages=user("report"))
        assert json.loads(report.choices[0].message.content)["adapter"] == "red"
    finally:
        post(client, "/v1/unload_lora_adapter", {"lora_name": "crimson"})
    assert "crimson" not in [model.id for model in client.models.list()]


def use_tokens(client: openai.OpenAI) -> None:
    tokens = post(client, "/tokenize", {"model": "tiny", "prompt": "say hé", "add_special_tokens": False})
    assert post(client, "/detokenize", {"model": "tiny", "tokens": tokens["tokens"]}) == {"prompt": "say hé"}
    # A prompt of its own in each run: `input_tokens` leaves out those that are cached.
    body = {"model": "tiny", "messages": user(f"say {openai.__version__}"), "max_tokens": 20}
    message = post(client, "/v1/messages", body)
    assert message["content"][0]["text"] == openai.__version__
    del body["max_tokens"]
    counted = post(client, "/v1/messages/count_tokens", body)
    assert counted["input_tokens"] == message["usage"]["input_tokens"]


def use_service(client: openai.OpenAI) -> None:
    assert get(client, "/health") == {"status": "ok"}
    assert get(client, "/version")["version"]
    assert "llm_generated_tokens" in get(client, "/metrics", str)


def error_of(kind: type[openai.APIStatusError], call: Callable[[], object]) -> Any:
    """Return the error that a call raises."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised, but {answer} returned")


def use_errors(client: openai.OpenAI) -> None:
    used.add("/v1/audio/transcriptions")
    create = client.chat.completions.create
    audio = error_of(
        openai.BadRequestError,
        lambda: client.audio.transcriptions.create(model="tiny", file=("a.wav", b"RIFF")),
    )
    assert "text only" in audio.message
    model = error_of(openai.NotFoundError, lambda: create(model="missing", messages=user("x")))
    assert (model.code, model.param) == ("model_not_found", "model")
    field = error_of(
        openai.BadRequestError,
        lambda: create(model="tiny", messages=user("x"), extra_body={"temprature": 1}),
    )
    assert "temperature" in field.message
    key = error_of(openai.AuthenticationError, client.with_options(api_key="wrong").models.list)
    assert key.status_code == 401


async def use_coroutines() -> None:
    """Use the asynchronous client for requests at the same time, and leave a stream early."""
    async with openai.AsyncOpenAI(
        base_url=f"{ROOT}/v1", api_key="secret", max_retries=0, timeout=30
    ) as client:
        create = client.chat.completions.create
        answers = await asyncio.gather(
            *(create(model="tiny", messages=user(f"say {number}")) for number in range(8))
        )
        assert [each.choices[0].message.content for each in answers] == [str(number) for number in range(8)]
        stream = await create(model="tiny", messages=user("say " + "long " * 50), stream=True)
        async for _ in stream:
            break
        await stream.close()
        events = [
            event async for event in await client.responses.create(model="tiny", input="x", stream=True)
        ]
        assert events[-1].type == "response.completed"


def main() -> None:
    with openai.OpenAI(base_url=f"{ROOT}/v1", api_key="secret", max_retries=0, timeout=30) as client:
        use_chat(client)
        use_parsed_answers(client)
        use_completions(client)
        use_responses(client)
        use_embeddings(client)
        use_models(client)
        use_tokens(client)
        use_service(client)
        use_errors(client)
    asyncio.run(use_coroutines())
    print(json.dumps({"version": openai.__version__, "used": sorted(used)}))


main()
