"""Applications that compute prompts in one deployment and continue them in another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from skate import serve
from skate.llm import Engine, GenerationRequest, PrefilledPrompt
from skate.llm._engine.torch_engine import TorchEngine
from skate.serve.exceptions import BackPressureError, ReplicaDiedError
from skate.serve.llm import LLMConfig, build_pd_openai_app
from skate.serve.llm._protocol.base import ErrorResponse, RequestError
from skate.serve.llm._server.disaggregation import _as_prefill_engine, _RemotePrefill
from skate.serve.llm.deployment import PDDecodeServer, PDPrefillServer
from skate.serve.llm.request_router import KVAwareRouter
from tests.conftest import LeakWatch
from tests.llm.engine.engine_contract import request
from tests.llm.engine.models import write_adapter, write_model
from tests.llm.serve import scripted

PROMPT = "The quick brown fox jumps over the lazy dog " * 3
MESSAGES = [{"role": "user", "content": PROMPT}]


def end_if_asked(request: GenerationRequest) -> None:
    """End this process as `kill -9` does, the first time that the salt of a request names a file."""
    if request.cache_salt and not Path(request.cache_salt).exists():
        Path(request.cache_salt).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def requests_of(engine: Engine) -> int:
    assert isinstance(engine, TorchEngine)
    return engine._loop.request_count


class MortalPrefillServer(PDPrefillServer):
    async def prefill(
        self, request: GenerationRequest, model: str | None = None
    ) -> PrefilledPrompt | ErrorResponse:
        end_if_asked(request)
        return await super().prefill(request, model)

    def requests(self) -> int:
        return requests_of(self.engine)


class WatchedDecodeServer(PDDecodeServer):
    def requests(self) -> int:
        return requests_of(self.engine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "model")
    write_model(folder / "prefill")
    write_adapter(folder / "adapters" / "poet", seed=3)
    return folder


def fields(folder: Path, name: str = "model", **more: Any) -> dict[str, Any]:
    """Return the fields of the configuration of a model."""
    return {
        "model_loading_config": {"model_id": "small", "model_source": str(folder / name)},
        "engine_kwargs": {"max_num_seqs": 4, "max_num_batched_tokens": 32, "num_threads": 1},
        "lora_config": {"dynamic_lora_loading_path": str(folder / "adapters")},
        "accelerator_config": {"kind": "cpu"},
        "deployment_config": {"ray_actor_options": {"num_cpus": 0.5}},
        **more,
    }


@pytest.fixture(scope="module")
def url(leak_watch: LeakWatch, folder: Path) -> Iterator[str]:
    from skate.serve.llm import build_openai_app

    with leak_watch.shared_session(num_cpus=4):
        serve.start(http_options={"port": 0})
        serve.run(build_openai_app({"llm_configs": [fields(folder)]}), name="single", route_prefix="/single")
        serve.run(
            build_pd_openai_app(
                {
                    "prefill_config": fields(
                        folder,
                        "prefill",
                        server_cls=MortalPrefillServer,
                        deployment_config={
                            "ray_actor_options": {"num_cpus": 0.5},
                            "request_router_config": {
                                "request_router_class": KVAwareRouter,
                                "request_routing_stats_period_s": 0.1,
                            },
                        },
                    ),
                    "decode_config": fields(folder, server_cls=WatchedDecodeServer),
                }
            )
        )
        host, port = serve.address()
        yield f"http://{host}:{port}"
        serve.shutdown()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
def single(url: str) -> Iterator[openai.OpenAI]:
    """Return a client of the same model on one engine."""
    with openai.OpenAI(base_url=f"{url}/single/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def prefill_handle() -> Any:
    return serve.get_deployment_handle("Prefill:small", "default")


def decode_handle() -> Any:
    return serve.get_deployment_handle("Decode:small", "default")


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"temperature": 0}, id="greedy"),
        pytest.param({"temperature": 0.9, "seed": 4, "n": 3}, id="samples"),
        pytest.param({"temperature": 0.9, "seed": 4, "logprobs": True, "top_logprobs": 2}, id="logprobs"),
        pytest.param({"temperature": 0, "model": "small:poet"}, id="adapter"),
        pytest.param(
            {
                "seed": 1,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"type": "integer"}},
                },
            },
            id="schema",
        ),
    ],
)
def test_answers_are_those_of_one_engine(
    client: openai.OpenAI, single: openai.OpenAI, options: dict[str, Any]
) -> None:
    given = {"model": "small", "messages": MESSAGES, "max_tokens": 16, **options}
    split, whole = (each.chat.completions.create(**given) for each in (client, single))
    assert [each.message.content for each in split.choices] == [
        each.message.content for each in whole.choices
    ]
    assert [each.logprobs for each in split.choices] == [each.logprobs for each in whole.choices]
    assert split.usage.completion_tokens == whole.usage.completion_tokens


def test_other_endpoints_answer_too(client: openai.OpenAI, single: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "small", "prompt": [PROMPT, "other"], "max_tokens": 8, "temperature": 0}
    split, whole = (each.completions.create(**given) for each in (client, single))
    assert [each.text for each in split.choices] == [each.text for each in whole.choices]
    asked: dict[str, Any] = {"model": "small", "input": PROMPT, "max_output_tokens": 8, "temperature": 0}
    assert client.responses.create(**asked).output_text == single.responses.create(**asked).output_text
    found = client.embeddings.create(model="small", input=PROMPT, encoding_format="float")
    assert len(found.data[0].embedding) == 48


def test_a_stream_gives_the_text_and_the_times_of_both_engines(
    client: openai.OpenAI, single: openai.OpenAI, url: str
) -> None:
    given: dict[str, Any] = {"model": "small", "messages": MESSAGES, "max_tokens": 16, "temperature": 0}
    chunks = list(client.chat.completions.create(**given, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    whole = single.chat.completions.create(**given)
    assert text == whole.choices[0].message.content
    assert whole.model_extra["timing"].keys() == {"queue", "prefill", "decode", "server"}
    timing = chunks[-1].model_extra["timing"]
    assert timing.keys() == {"queue", "prefill", "transfer", "decode", "server"}
    assert timing["transfer"] > 0
    answer = client.chat.completions.with_raw_response.create(**given)
    assert "transfer;dur=" in answer.headers["server-timing"]
    assert 'part="transfer"' in httpx.get(f"{url}/metrics").text


def test_the_prefix_cache_of_prefill_is_reported_and_cleared(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "small", "prompt": PROMPT * 2, "max_tokens": 4, "temperature": 0}
    client.completions.create(**given)
    assert client.completions.create(**given).usage.prompt_tokens_details.cached_tokens > 16
    decode_handle().reset_prefix_cache.remote().result()
    assert client.completions.create(**given).usage.prompt_tokens_details.cached_tokens == 0


def test_a_replica_reports_its_cache_to_a_router_that_asks_for_it(client: openai.OpenAI) -> None:
    client.completions.create(model="small", prompt=PROMPT, max_tokens=1)
    assert len(prefill_handle().record_routing_stats.remote().result()["blocks"]) >= 8
    assert decode_handle().record_routing_stats.remote().result() == {}


def test_errors_have_openais_shape(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="256"):
        client.completions.create(model="small", prompt="x" * 1000)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="small:missing", prompt="x")


def test_weights_that_differ_are_an_error_that_says_so(client: openai.OpenAI, folder: Path) -> None:
    handle = prefill_handle()
    handle.sleep.remote().result()
    with pytest.raises(openai.InternalServerError, match="asleep") as asleep:
        client.completions.create(model="small", prompt=PROMPT)
    assert asleep.value.status_code == 503
    write_model(folder / "prefill", seed=1)  # a waking engine reads its weights again
    handle.wakeup.remote().result()
    with pytest.raises(openai.InternalServerError, match="load the same weights into both engines") as differ:
        client.completions.create(model="small", prompt=PROMPT)
    assert (differ.value.status_code, differ.value.code) == (503, "kv_transfer_failed")
    handle.sleep.remote().result()
    write_model(folder / "prefill")
    handle.wakeup.remote().result()
    assert client.completions.create(model="small", prompt=PROMPT, max_tokens=4).choices


def test_a_disconnect_ends_the_request_in_both_engines(url: str) -> None:
    prefill, decode = prefill_handle(), decode_handle()
    body = json.dumps({"model": "small", "prompt": PROMPT, "max_tokens": 200, "stream": True})
    for paused in (prefill, decode):
        paused.pause.remote().result()
        connection = HTTPConnection(url.removeprefix("http://"))
        try:
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            wait_for(lambda paused=paused: paused.requests.remote().result() == 1)  # type: ignore[misc]  # a default
            if paused is decode:  # the first token needs no step of the engine that continues
                assert b'"text"' in connection.getresponse().read1()
            connection.close()
            wait_for(lambda paused=paused: paused.requests.remote().result() == 0)  # type: ignore[misc]  # a default
        finally:
            connection.close()
            paused.resume.remote().result()
    assert prefill.requests.remote().result() == 0


def test_a_prompt_whose_replica_is_killed_is_computed_by_the_next(
    client: openai.OpenAI, single: openai.OpenAI, url: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model": "small", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    try:
        killed = client.completions.create(**given, extra_body={"cache_salt": str(tmp_path / "killed")})
    except openai.OpenAIError as error:
        error.add_note(f"the applications: {serve.status()}")  # why no other replica has started
        raise
    assert (tmp_path / "killed").exists()
    assert killed.choices[0].text == single.completions.create(**given).choices[0].text
    wait_for(lambda: httpx.get(f"{url}/health").status_code == 200)


# ------------------------------------------------------------ attempts


class FakeResponse:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def cancel(self) -> None: ...


class FakeHandle:
    """A deployment that answers with these values, one after another."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.prefill = self

    def remote(self, request: GenerationRequest, model: str | None) -> FakeResponse:
        return FakeResponse(self.answers.pop(0))


async def run_with(folder: Path, *answers: Any) -> tuple[str, list[Any]]:
    """Return a text whose prompt was computed by a deployment with these answers, and those that were not needed."""
    engine = TorchEngine.load(folder / "model", {"num_threads": 1})
    asked = request(engine)
    good = await engine.prefill(asked)
    handle = FakeHandle(
        *(good if each == "good" else each(good) if callable(each) else each for each in answers)
    )
    generator = _RemotePrefill(engine, handle, None)  # type: ignore[arg-type]
    try:
        return "".join([piece.text async for piece in generator.generate(asked)]), handle.answers
    finally:
        await engine.close()


DEATH = ReplicaDiedError("replica")


async def test_attempts_end_with_the_first_prompt_that_fits(folder: Path) -> None:
    def stale(good: PrefilledPrompt) -> PrefilledPrompt:
        return replace(good, layout=replace(good.layout, weights="old"))

    replaced = RequestError("replaced", 503, code="kv_transfer_failed").response
    text, left = await run_with(folder, DEATH, replaced, "good", "good")
    assert (len(text) > 0, len(left)) == (True, 1)
    assert await run_with(folder, stale, "good") == (text, [])
    with pytest.raises(RequestError, match="load the same weights into both engines") as failed:
        await run_with(folder, stale, stale, stale)
    assert failed.value.response.error.code == "kv_transfer_failed"


@pytest.mark.parametrize(
    ("answers", "status", "code"),
    [
        pytest.param([DEATH] * 3, 503, "prefill_failed", id="each replica dies"),
        pytest.param([BackPressureError(5, 5)], 429, "rate_limit_exceeded", id="the queue is full"),
        pytest.param([RequestError("no", param="prompt").response], 400, None, id="the request is refused"),
    ],
)
async def test_an_error_has_openais_shape(
    folder: Path, answers: list[Any], status: int, code: str | None
) -> None:
    with pytest.raises(RequestError) as failed:
        await run_with(folder, *answers)
    assert (failed.value.status, failed.value.response.error.code) == (status, code)
    assert failed.value.response.error.type


# ------------------------------------------------------------ configuration


def test_an_application_is_built_from_yaml(tmp_path: Path) -> None:
    model = {"model_loading_config": {"model_id": "a.b/c"}, "accelerator_config": {"kind": "cpu"}}
    path = tmp_path / "decode.yaml"
    path.write_text(yaml.safe_dump(model))
    scaling = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 3}}
    kwargs = {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}}
    text = yaml.safe_dump(
        {
            "prefill_config": {**model, "deployment_config": scaling, "engine_kwargs": kwargs},
            "decode_config": str(path),
        }
    )
    app = build_pd_openai_app(yaml.safe_load(text))
    decode = app._kwargs["llm_deployments"]["a.b/c"]
    prefill = decode._kwargs["prefill_server"]._bound_deployment
    decode = decode._bound_deployment
    assert (prefill.name, decode.name) == ("Prefill:a_b--c", "Decode:a_b--c")
    assert prefill.autoscaling_config.max_replicas == 3
    assert decode.num_replicas == 1


def config(**more: Any) -> LLMConfig:
    return LLMConfig(
        **{"model_loading_config": {"model_id": "tiny"}, "accelerator_config": {"kind": "cpu"}, **more}
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "message"),
    [
        ({}, {"model_loading_config": {"model_id": "other"}}, "both must serve the same model"),
        (
            {"engine_kwargs": {"quantization": "int4"}},
            {},
            r"\['quantization'\] is 'int4' in `prefill_config` and None",
        ),
        ({}, {"server_cls": PDPrefillServer}, "must be a subclass of PDDecodeServer"),
    ],
)
def test_configurations_that_do_not_fit_together_are_refused(
    prefill: dict[str, Any], decode: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_pd_openai_app({"prefill_config": config(**prefill), "decode_config": config(**decode)})


def test_a_misspelt_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'decode_config'"):
        build_pd_openai_app({"prefill_config": config(), "decode_configs": config()})


def test_vllm_cannot_be_split() -> None:
    with pytest.raises(NotImplementedError, match="set llm_engine='torch'"):
        build_pd_openai_app({"prefill_config": config(llm_engine="vLLM"), "decode_config": config()})


def test_ranks_are_replicas() -> None:
    app = build_pd_openai_app(
        {"prefill_config": config(engine_kwargs={"data_parallel_size": 3}), "decode_config": config()}
    )
    decode = app._kwargs["llm_deployments"]["tiny"]
    assert decode._kwargs["prefill_server"]._bound_deployment.num_replicas == 3


def test_an_engine_that_cannot_prefill_is_refused() -> None:
    engine: Any = scripted.ScriptedEngine()
    with pytest.raises(TypeError, match="returned a ScriptedEngine, which has no method `prefill`"):
        _as_prefill_engine(engine, config(llm_engine=scripted.start))
