"""Limits, cancellation, keys, adapters, failures and several models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from skate import serve
from skate.serve.llm import LLMServer
from skate.serve.llm.openai_api_models import ChatCompletionRequest, ErrorResponse
from tests.llm.serve.conftest import Run, config
from tests.llm.serve.scripted import ScriptedEngine

KEY = "sk-secret"


class GatedServer(LLMServer):
    """A server whose gates can be opened while it is full."""

    async def open_gate(self, name: str) -> None:
        assert isinstance(self.engine, ScriptedEngine)
        self.engine.open(name)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for name in ("red", "blue", "green"):
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(json.dumps({"tag": name}))
    (folder / "broken").mkdir()
    (folder / "broken" / "adapter_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def url(run_app: Run, adapters: Path) -> str:
    return run_app(
        config("tiny"),
        config(
            "narrow",
            server_cls=GatedServer,
            deployment_config={"max_ongoing_requests": 1, "max_queued_requests": 1},
        ),
        config(
            "base",
            lora_config={"dynamic_lora_loading_path": str(adapters), "max_num_adapters_per_replica": 2},
        ),
        config("mortal", deployment_config={"health_check_period_s": 0.2}),
        ingress_cls_config={"ingress_extra_kwargs": {"api_keys": ["other", KEY]}},
    )


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as made:
        yield made


def ask(client: openai.OpenAI, text: str, model: str = "tiny", **fields: Any) -> str:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], **fields
    )
    return str(answer.choices[0].message.content)


def report(client: openai.OpenAI, model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(client, "report", model))
    return found


def test_a_client_needs_a_key(url: str) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": KEY},
        {"x-api-key": "ключ".encode()},
    ):
        refused = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)  # type: ignore[arg-type]
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert refused.headers["www-authenticate"] == "Bearer"
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": "other"}):
        assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers).status_code == 200


def test_health_needs_no_key_but_models_do(url: str) -> None:
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/v1/models").status_code == 401
    assert httpx.get(f"{url}/metrics").status_code == 401


def test_each_model_answers_its_requests(client: openai.OpenAI) -> None:
    assert ask(client, "say a", "tiny") == "a"
    assert ask(client, "say b", "narrow") == "b"


def test_a_model_must_be_named_if_there_are_several(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "hi"})
    assert answer.status_code == 400
    assert "base, mortal, narrow, tiny" in answer.json()["error"]["message"]


def test_requests_beyond_the_queue_are_turned_away(client: openai.OpenAI) -> None:
    running = client.chat.completions.create(
        model="narrow", messages=[{"role": "user", "content": "gate full abcd"}], stream=True
    )
    chunks = iter(running)
    next(chunks)
    with ThreadPoolExecutor() as pool:
        ended = as_completed([pool.submit(ask, client, "say later", "narrow") for _ in range(3)])
        for _ in range(2):  # one of the three may wait
            error = next(ended).exception()
            assert isinstance(error, openai.RateLimitError)
            assert error.code == "rate_limit_exceeded"
            assert int(error.response.headers["retry-after"]) >= 1
        serve.get_deployment_handle("GatedServer:narrow", "default").broadcast("open_gate", "full").results()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "bcd"
        assert next(ended).result() == "later"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_ends_when_its_client_leaves(url: str, stream: bool) -> None:
    name = f"left-{stream}"
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=30) as client:

        async def say(text: str, **fields: Any) -> Any:
            return await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": text}], **fields
            )

        task = asyncio.create_task(say(f"hang {name}", stream=stream))
        await say(f"await running {name}")
        task.cancel()
        # It ends only when the engine has aborted the other.
        assert (await say(f"await aborted {name}")).choices[0].message.content == f"aborted {name}"


async def test_all_samples_end_when_their_client_leaves(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=30) as client:

        async def say(text: str, **fields: Any) -> Any:
            return await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": text}], **fields
            )

        task = asyncio.create_task(say("hang several", n=3))
        await say("await running several")
        task.cancel()
        await say("await aborted several")


def test_adapters_are_models(client: openai.OpenAI) -> None:
    assert report(client, "base")["adapter"] is None
    assert report(client, "base:red")["adapter"] == "red"
    assert report(client, "base:blue")["adapter"] == "blue"
    names = [model.id for model in client.models.list()]
    assert {"base", "base:red", "base:blue", "base:green"} <= set(names)
    assert client.models.retrieve("base:red").model_extra["parent"] == "base"  # type: ignore[index]


def test_the_least_recently_used_adapter_is_unloaded(client: openai.OpenAI) -> None:
    for name in ("red", "blue", "green", "red"):
        assert report(client, f"base:{name}")["adapters"] <= 2


def test_an_unknown_adapter_is_not_found(client: openai.OpenAI) -> None:
    for model in ("base:none", "base:../red", "base:", "tiny:red", "base/red"):
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            ask(client, "hi", model)


def test_an_adapter_that_cannot_be_loaded_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Could not load the adapter"):
        ask(client, "hi", "base:broken")
    assert ask(client, "say fine", "base:red") == "fine"


def test_an_adapter_can_be_loaded_and_unloaded_by_name(
    client: openai.OpenAI, http: httpx.Client, adapters: Path, tmp_path: Path
) -> None:
    body = {"lora_name": "crimson", "lora_path": str(adapters / "red")}
    assert http.post("/v1/load_lora_adapter", json=body).status_code == 200
    assert report(client, "crimson")["adapter"] == "red"
    assert "already" in http.post("/v1/load_lora_adapter", json=body).json()["error"]["message"]
    assert http.post("/v1/unload_lora_adapter", json={"lora_name": "crimson"}).status_code == 200
    with pytest.raises(openai.NotFoundError):
        ask(client, "hi", "crimson")
    outside = {"lora_name": "outside", "lora_path": str(tmp_path)}
    assert "inside the folder" in http.post("/v1/load_lora_adapter", json=outside).json()["error"]["message"]
    empty = {"lora_name": "empty", "lora_path": str(adapters)}
    assert http.post("/v1/load_lora_adapter", json=empty).status_code == 404


def test_an_engine_that_died_fails_its_requests_and_comes_back(client: openai.OpenAI, url: str) -> None:
    stream = client.chat.completions.create(
        model="mortal", messages=[{"role": "user", "content": "die half"}], stream=True
    )
    received: list[str] = []
    with pytest.raises(openai.APIError, match="engine has failed: half"):
        received.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(received) == "half"
    while True:  # until Serve has replaced the replica
        try:
            assert ask(client, "say back", "mortal") == "back"
            break
        except openai.InternalServerError as error:
            assert error.status_code == 503  # noqa: PT017
    while httpx.get(f"{url}/health").status_code != 200:
        pass
    assert ask(client, "say fine", "tiny") == "fine"


def test_a_handle_controls_the_engine(client: openai.OpenAI, url: str) -> None:
    handle = serve.get_deployment_handle("LLMServer:tiny", "default")
    handle.pause.remote().result()
    assert handle.is_paused.remote().result()
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(client, "say resumed")))
    waiting.start()
    handle.resume.remote().result()
    waiting.join()
    assert answers == ["resumed"]
    assert not handle.is_paused.remote().result()
    handle.sleep.remote(level=1).result()
    assert handle.is_sleeping.remote().result()
    with pytest.raises(openai.InternalServerError, match="asleep"):
        ask(client, "hi")
    handle.wakeup.remote().result()
    handle.reset_prefix_cache.remote().result()
    assert ask(client, "say awake") == "awake"
    assert handle.llm_config.remote().result().model_id == "tiny"
    with pytest.raises(NotImplementedError, match="needs an engine that implements"):
        handle.collective_rpc.remote("load_weights").result()


def test_a_handle_answers_requests(client: openai.OpenAI) -> None:
    handle = serve.get_deployment_handle("LLMServer:tiny", "default").options(stream=True)
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "say by handle"}])  # type: ignore[list-item]
    answers = list(handle.chat.remote(request))
    assert [each.choices[0].message.content for each in answers] == ["by handle"]
    wrong = request.model_copy(update={"model": "unknown"})
    (error,) = handle.chat.remote(wrong)
    assert isinstance(error, ErrorResponse)
    assert error.error.code == "model_not_found"


def test_two_requests_may_have_one_id(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"extra_body": {"request_id": "same"}}
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, client, f"say {number}", **fields) for number in range(4)]
        assert [answer.result() for answer in answers] == ["0", "1", "2", "3"]


def test_an_engine_that_is_stuck_is_not_healthy(client: openai.OpenAI, url: str) -> None:
    assert httpx.get(f"{url}/health").status_code == 200
    ask(client, "stick x", "mortal")
    answer = httpx.get(f"{url}/health", timeout=30)
    assert answer.status_code == 503
    assert answer.json()["models"].keys() == {"mortal"}
