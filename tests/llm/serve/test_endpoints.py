"""All endpoints of OpenAI's API but chat completions; and hundreds of bad requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from tests.llm.serve.bad_requests import BAD

STREAMS = 8
TIMES = 3


def test_a_completion_continues_a_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="say hi there")
    assert answer.object == "text_completion"
    assert answer.choices[0].text == "hi there"
    assert answer.usage.prompt_tokens == len("say hi there") + 1  # and one BOS


def test_a_completion_has_sixteen_tokens_by_default(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="say 0123456789abcdefgh")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("0123456789abcdef", "length")


def test_several_prompts_have_samples_in_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["say a", "say b"], n=2)
    assert [choice.text for choice in answer.choices] == ["a", "a", "b", "b"]


def test_prompts_may_be_tokens(client: openai.OpenAI, url: str) -> None:
    tokens = httpx.post(f"{url}/tokenize", json={"prompt": "say tokens"}).json()["tokens"]
    assert client.completions.create(model="tiny", prompt=tokens).choices[0].text == "tokens"
    both = client.completions.create(model="tiny", prompt=[tokens, tokens])
    assert [choice.text for choice in both.choices] == ["tokens", "tokens"]


def test_a_stream_of_completions_has_the_same_text(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="tiny", prompt="say strömt", stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == "strömt"
    assert last.choices == []
    assert last.usage.completion_tokens == 8


def test_echo_returns_the_prompt_too(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="say more", echo=True)
    assert answer.choices[0].text == "say moremore"


def test_completions_have_log_probabilities(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="say ab", logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs.tokens[:2] == ["a", "b"]
    assert logprobs.text_offset[:2] == [0, 1]
    assert logprobs.top_logprobs[0] == {"a": -0.5}


def test_embeddings_have_one_vector_for_each_input(client: openai.OpenAI, url: str) -> None:
    answer = client.embeddings.create(model="tiny", input=["a", "b"])  # the client asks for base64
    assert len(answer.data) == 2
    plain = httpx.post(f"{url}/v1/embeddings", json={"input": "a"}).json()
    assert answer.data[0].embedding == pytest.approx(plain["data"][0]["embedding"], abs=1e-6)
    assert sum(each**2 for each in plain["data"][0]["embedding"]) == pytest.approx(1)
    assert plain["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 0,
        "total_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_embeddings_are_never_shortened_silently(client: openai.OpenAI) -> None:
    assert len(client.embeddings.create(model="tiny", input="a", dimensions=8).data) == 1
    with pytest.raises(openai.BadRequestError, match="8 dimensions and cannot be reduced to 4"):
        client.embeddings.create(model="tiny", input="a", dimensions=4)
    with pytest.raises(openai.BadRequestError, match="3001 tokens, which do not fit"):
        client.embeddings.create(model="tiny", input="a" * 3000)


def test_a_conversation_has_an_embedding(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert len(httpx.post(f"{url}/v1/embeddings", json=body).json()["data"]) == 1


def test_scores_compare_one_text_with_each_of_several(url: str) -> None:
    body = {"text_1": "aaa", "text_2": ["aaa", "bbb"]}
    first, second = httpx.post(f"{url}/v1/score", json=body).json()["data"]
    assert first["score"] == pytest.approx(1)
    assert second["score"] < 0.5


def test_reranking_orders_documents(url: str) -> None:
    body = {"query": "aaa", "documents": ["bbb", "aab", "aaa"], "top_n": 2}
    results = httpx.post(f"{url}/v1/rerank", json=body).json()["results"]
    assert [each["index"] for each in results] == [2, 1]
    assert results[0]["document"] == {"text": "aaa"}


def test_texts_become_tokens_and_back(url: str) -> None:
    answer = httpx.post(f"{url}/tokenize", json={"prompt": "hé", "return_token_strs": True}).json()
    assert answer["count"] == 4
    assert answer["max_model_len"] == 2048
    assert answer["token_strs"][:2] == ["<|bos|>", "h"]
    assert httpx.post(f"{url}/detokenize", json={"tokens": answer["tokens"][1:]}).json() == {"prompt": "hé"}


def test_a_conversation_has_the_tokens_of_its_prompt(client: openai.OpenAI, url: str) -> None:
    messages = [{"role": "user", "content": "say x"}]
    tokens = httpx.post(f"{url}/tokenize", json={"messages": messages}).json()["count"]
    answer = client.chat.completions.create(model="tiny", messages=messages)  # type: ignore[arg-type]
    assert answer.usage.prompt_tokens == tokens


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "skate"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("tiny/other")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_the_service_says_how_it_is(url: str) -> None:
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{url}/version").json()["version"]


def test_metrics_count_requests_and_tokens(client: openai.OpenAI, url: str) -> None:
    client.completions.create(model="tiny", prompt="say counted")
    text = httpx.get(f"{url}/metrics").text
    lines = [line for line in text.splitlines() if "llm_generated_tokens" in line and 'model="tiny"' in line]
    assert lines
    assert float(lines[0].rpartition(" ")[2]) >= 8


def test_audio_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="text only"):
        client.audio.transcriptions.create(model="tiny", file=("a.wav", b"RIFF"))


def test_unknown_paths_and_methods_have_errors_in_openais_shape(url: str) -> None:
    for response, status in (
        (httpx.get(f"{url}/v1/nothing"), 404),
        (httpx.get(f"{url}/v1/completions"), 405),
    ):
        assert response.status_code == status
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}


def test_structured_answers_follow_their_grammar(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    answer = client.completions.create(
        model="tiny",
        prompt="random",
        seed=1,
        max_tokens=400,
        extra_body={"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
    )
    assert isinstance(json.loads(answer.choices[0].text)["a"], int)


async def test_good_streams_finish_beside_hundreds_of_bad_requests(url: str) -> None:
    text = "abcdefghij" * 12
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=100) as client,
        httpx.AsyncClient(base_url=url, timeout=100) as http,
    ):
        begun = [asyncio.Event() for _ in range(STREAMS)]

        async def read(number: int) -> str:
            received = ""
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": f"gate {number} {text}"}],
                stream=True,
            )
            async for chunk in stream:
                received += chunk.choices[0].delta.content or ""
                begun[number].set()
            return received

        streams = [asyncio.create_task(read(number)) for number in range(STREAMS)]
        await asyncio.gather(*(each.wait() for each in begun))

        limit = asyncio.Semaphore(16)

        async def post(path: str, body: Any) -> httpx.Response:
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            async with limit:  # more would only wait in the proxy
                return await http.post(path, **content)

        answers = await asyncio.gather(*(post(path, body) for path, body, _ in BAD * TIMES))
        for (path, body, message), answer in zip(BAD * TIMES, answers, strict=True):
            shown = f"{path} {str(body)[:300]}: {answer.status_code} {answer.text[:600]}"
            assert 400 <= answer.status_code < 500, shown
            error = answer.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}, shown
            assert message in error["message"], shown
            assert len(error["message"]) < 2000, shown
        assert not any(stream.done() for stream in streams)
        for number in range(STREAMS):
            await client.completions.create(model="tiny", prompt=f"open {number}")
        assert await asyncio.gather(*streams) == [text] * STREAMS
        assert (await http.get("/health")).status_code == 200


def test_there_are_many_bad_requests() -> None:
    assert len(BAD) * TIMES >= 450
