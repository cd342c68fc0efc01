"""Prefix-aware routing, the FastAPI ingress, and older names, in one session."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate import serve
from skate.serve.llm import LLMRouter, LLMServer, build_dp_openai_app, build_llm_deployment
from skate.serve.llm._prefix_index import BLOCK, PrefixIndex
from skate.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from skate.serve.llm.openai_api_models import to_model_metadata
from skate.serve.llm.request_router import KVAwareRouter, PrefixCacheAffinityRouter
from tests.llm.serve.conftest import Run, config

texts = st.text("ab", max_size=4).map(lambda text: "".join(char * BLOCK for char in text))


@given(st.lists(st.tuples(texts, st.sampled_from("xyz"))), texts)
def test_an_index_knows_the_longest_beginning_of_each_replica(seen: list[tuple[str, str]], text: str) -> None:
    index = PrefixIndex(10**6)
    expected: dict[str, int] = {}
    for each, replica in seen:
        index.insert(each, replica)
        shared = next(
            (n for n, (a, b) in enumerate(zip(each, text, strict=False)) if a != b), min(len(each), len(text))
        )
        expected[replica] = max(expected.get(replica, 0), shared)
    assert index.match(text) == {replica: count for replica, count in expected.items() if count}


def test_an_index_is_bounded_and_forgets_replicas() -> None:
    index = PrefixIndex(10 * BLOCK, 5 * BLOCK)
    for number in range(100):
        index.insert(str(number % 10) * BLOCK + str(number), "x")
    assert index.size("x") <= 10 * BLOCK
    index.insert("q" * BLOCK, "y")
    index.keep_only(["x"])
    assert index.match("q" * BLOCK) == {}
    assert index.size("y") == 0


def test_a_router_without_what_it_needs_says_so() -> None:
    with pytest.raises(NotImplementedError, match="PrefixCacheAffinityRouter"):
        KVAwareRouter(None).initialize_state()  # type: ignore[arg-type]


def run_at(run_app: Run, app: serve.Application, name: str) -> str:
    serve.run(app, name=name, route_prefix=f"/{name}")
    host, port = serve.address()
    return f"http://{host}:{port}/{name}"


def cached(url: str, text: str) -> int:
    body = {"messages": [{"role": "user", "content": text}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).json()
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_prompts_that_begin_alike_go_to_one_replica(run_app: Run) -> None:
    model = config(
        engine_kwargs={"data_parallel_size": 2},
        deployment_config={"request_router_config": {"request_router_class": PrefixCacheAffinityRouter}},
    )
    url = run_at(run_app, build_dp_openai_app({"llm_config": model}), "prefix")
    prompts = [f"say {letter * 200}" for letter in "abcdef"]
    assert [cached(url, prompt) for prompt in prompts] == [0] * 6
    assert all(cached(url, prompt) for prompt in prompts * 2)


class Shouter(OpenAiIngress):
    """An ingress with an endpoint of its own."""

    async def shout(self, text: str) -> str:
        return text.upper()


def test_endpoints_can_be_added_with_fastapi(run_app: Run) -> None:
    model = config()
    endpoints: Any = {
        "chat": lambda app: app.post("/v1/chat/completions", response_model=None),
        "models": lambda app: app.get("/v1/models", response_model=None),
        "shout": lambda app: app.get("/shout"),
    }
    ingress = make_fastapi_ingress(Shouter, endpoint_map=endpoints)
    app = serve.deployment(ingress, **Shouter.get_deployment_options([model])).bind(
        {"tiny": build_llm_deployment(model)}, {"tiny": to_model_metadata("tiny", model)}
    )
    url = run_at(run_app, app, "shouter")
    assert httpx.get(f"{url}/shout", params={"text": "hi"}).json() == "HI"
    body = {"messages": [{"role": "user", "content": "say fast"}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "fast"
    assert [each["id"] for each in httpx.get(f"{url}/v1/models").json()["data"]] == ["tiny"]
    for wrong, message in (({"messages": []}, "messages"), ({**body, "modle": "x"}, "Did you mean 'model'")):
        refused = httpx.post(f"{url}/v1/chat/completions", json=wrong)
        assert refused.status_code == 400
        assert message in refused.json()["error"]["message"]
    missing = httpx.post(f"{url}/v1/chat/completions", json={**body, "model": "none"})
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_all_endpoints_can_be_made_with_fastapi() -> None:
    assert issubclass(make_fastapi_ingress(OpenAiIngress), OpenAiIngress)


def test_older_names_build_the_same_application(run_app: Run) -> None:
    model = config()
    server = LLMServer.as_deployment(model.get_serve_options(name_prefix="vLLM:")).bind(model)
    url = run_at(run_app, LLMRouter.as_deployment([model]).bind([server]), "older")
    body = {"model": "tiny", "prompt": "report", "max_tokens": 500}
    answer = httpx.post(f"{url}/v1/completions", json=body).json()
    assert json.loads(answer["choices"][0]["text"])["prompt"] == "[bos]report"
