"""Chat completions with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": text}], **fields
    )


def test_an_answer_has_the_text_the_usage_and_the_finish_reason(client: openai.OpenAI) -> None:
    answer = ask(client, "say Hello, wörld!")
    assert answer.object == "chat.completion"
    assert answer.model == "tiny"
    assert answer.choices[0].message.content == "Hello, wörld!"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens == len("Hello, wörld!".encode()) + 1


def test_a_stream_has_the_same_text_as_an_answer(client: openai.OpenAI) -> None:
    chunks = list(ask(client, "say Grüße 🛹!", stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Grüße 🛹!"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
    assert len(chunks) > 5
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_ends_with_the_usage_if_asked(client: openai.OpenAI) -> None:
    *chunks, last = ask(client, "say abc", stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks)
    assert last.model_extra["timing"].keys() == {"queue", "prefill", "decode", "server"}


def test_a_part_is_sent_as_soon_as_it_is_generated(client: openai.OpenAI) -> None:
    stream = iter(ask(client, "gate first abcdef", stream=True))
    assert next(stream).choices[0].delta.content == "a"  # the engine waits: batching would never send it
    ask(client, "open first")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "bcdef"


def test_several_samples_have_their_own_seeds(client: openai.OpenAI) -> None:
    answer = ask(client, "report", n=3, seed=7)
    assert [json.loads(choice.message.content)["seed"] for choice in answer.choices] == [7, 8, 9]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_a_stream_of_several_samples_has_all_of_them(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    ends = []
    for chunk in ask(client, "say several", n=2, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        ends += [choice.index] if choice.finish_reason else []
    assert texts == {0: "several", 1: "several"}
    assert sorted(ends) == [0, 1]


def test_fields_reach_the_engine(client: openai.OpenAI) -> None:
    answer = ask(
        client,
        "report",
        temperature=0.5,
        logit_bias={"65": 3},
        extra_body={
            "top_k": -1,
            "min_tokens": 2,
            "priority": 4,
            "cache_salt": "pepper",
            "stop_token_ids": [3],
        },
    )
    report = json.loads(answer.choices[0].message.content)
    assert report["temperature"] == 0.5
    assert report["logit_bias"] == {"65": 3.0}
    assert report["top_k"] == 0
    assert report["min_tokens"] == 2
    assert report["priority"] == 4
    assert report["cache_salt"] == "pepper"
    assert report["stop_token_ids"] == [3]


def test_the_prompt_has_one_bos_token(client: openai.OpenAI) -> None:
    report = json.loads(ask(client, "report").choices[0].message.content)
    assert report["prompt"] == "[bos][im_start]user\nreport[im_end]\n[im_start]assistant\n"


def test_messages_may_be_parts_and_have_all_roles(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "rep"}, {"type": "text", "text": "ort"}]},
        ],
    )
    prompt = json.loads(answer.choices[0].message.content)["prompt"]
    assert prompt.startswith("[bos][im_start]system\nbe kind[im_end]\n[im_start]user\nreport[im_end]")


def test_the_last_message_can_be_continued(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "report"}, {"role": "assistant", "content": "The answer"}],
        extra_body={"continue_final_message": True},
    )
    prompt = json.loads(answer.choices[0].message.content)["prompt"]
    assert prompt.endswith("[im_start]assistant\nThe answer")


def test_stop_strings_and_limits_end_the_text(client: openai.OpenAI) -> None:
    stopped = ask(client, "say one. two", stop=[". "])
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("one", "stop")
    assert stopped.choices[0].model_extra["stop_reason"] == ". "
    for field in ("max_tokens", "max_completion_tokens"):
        cut = ask(client, "say abcdef", **{field: 3})
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("abc", "length")


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_those_of_the_tokens(client: openai.OpenAI, stream: bool) -> None:
    answer = ask(client, "say hé", logprobs=True, top_logprobs=2, stream=stream)
    parts = answer if stream else [answer]
    found = [each for part in parts for c in part.choices if c.logprobs for each in c.logprobs.content]
    assert [each.logprob for each in found] == [-0.5] * 4
    assert found[0].token == "h"
    assert found[0].bytes == [104]
    assert len(found[0].top_logprobs) == 2


def test_reasoning_is_separated_from_the_answer(client: openai.OpenAI) -> None:
    answer = ask(client, "say <think>hm, 4</think>\n\nIt is 4.")
    assert answer.choices[0].message.content == "It is 4."
    assert answer.choices[0].message.reasoning_content == "hm, 4"
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    stream = ask(
        client,
        "say hm, 4</think>It is 4.",
        stream=True,
        extra_body={"chat_template_kwargs": {"enable_thinking": True}},
    )
    reasoning = content = ""
    for chunk in stream:
        reasoning += (chunk.choices[0].delta.model_extra or {}).get("reasoning_content") or ""
        content += chunk.choices[0].delta.content or ""
    assert (reasoning, content) == ("hm, 4", "It is 4.")


def test_cached_tokens_are_reported(client: openai.OpenAI) -> None:
    first = ask(client, "say cached", extra_body={"cache_salt": "cached"})
    second = ask(client, "say cached", extra_body={"cache_salt": "cached"})
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == second.usage.prompt_tokens - 1


def test_every_answer_says_where_its_time_went(client: openai.OpenAI) -> None:
    response = client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": "say timed"}]
    )
    parts = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    assert parts.keys() == {"queue", "prefill", "decode", "server"}
    timing = response.parse().model_extra["timing"]
    assert float(parts["decode"]) == pytest.approx(1000 * timing["decode"], abs=0.01)
    assert response.headers["x-request-id"]


def test_the_request_id_of_the_client_is_returned(client: openai.OpenAI) -> None:
    response = client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": "hi"}], extra_headers={"x-request-id": "mine"}
    )
    assert response.headers["x-request-id"] == "mine"


def test_ignored_fields_are_named(client: openai.OpenAI) -> None:
    answer = ask(client, "hi", user="me", store=False, metadata={"a": "b"})
    assert sorted(answer.model_extra["ignored_fields"]) == ["metadata", "store", "user"]
    assert "ignored_fields" not in ask(client, "hi").model_extra


def test_token_ids_are_returned_if_asked(client: openai.OpenAI) -> None:
    answer = ask(client, "say ab", extra_body={"return_token_ids": True})
    assert len(answer.choices[0].model_extra["token_ids"]) == 3
    assert len(answer.model_extra["prompt_token_ids"]) == answer.usage.prompt_tokens


def test_an_error_of_the_engine_ends_a_stream_with_an_error(client: openai.OpenAI) -> None:
    received: list[str] = []
    stream = ask(client, "crash partial", stream=True)
    with pytest.raises(openai.APIError, match="server failed"):
        received.extend(chunk.choices[0].delta.content for chunk in stream)
    assert "".join(received) == "partial"
    with pytest.raises(openai.InternalServerError, match="See its log"):
        ask(client, "crash partial")
    assert ask(client, "say still here").choices[0].message.content == "still here"


def test_a_request_that_the_engine_refuses_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="refused: no"):
        ask(client, "refuse no", stream=True)


def test_messages_that_the_template_rejects_are_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="rejected the messages: no such message"):
        ask(client, "reject")
