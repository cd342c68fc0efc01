"""Prefix-aware routing, the FastAPI ingress, and older names, in one session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from skate import serve
from skate.llm import CachedPrefixes, GenerationRequest
from skate.serve._router.routing_views import RequestMetadata
from skate.serve.llm import LLMRouter, LLMServer, build_dp_openai_app, build_llm_deployment
from skate.serve.llm._prefix_index import BLOCK, PrefixIndex
from skate.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from skate.serve.llm.openai_api_models import CompletionRequest, to_model_metadata
from skate.serve.llm.request_router import KVAwareRouter, PrefixCacheAffinityRouter
from skate.serve.request_router import PendingRequest
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


@dataclass
class FakeReplica:
    """What a router sees of a replica."""

    replica_id: str
    queue_len: int = 0
    routing_stats: dict[str, Any] = field(default_factory=lambda: {"block_size": 4})

    def report(self, *prompts: list[int]) -> None:
        """Report these prompts as all that is cached."""
        keys = CachedPrefixes(block_size=4, weights_version=0, blocks=b"").keys
        blocks = b"".join(key for prompt in prompts for key in keys(prompt))
        self.routing_stats = {"block_size": 4, "weights_version": 0, "blocks": blocks}


class TokenRouter:
    """A `KVAwareRouter` of two replicas, and the requests that were sent through it."""

    def __init__(self) -> None:
        self.first, self.second = FakeReplica("first"), FakeReplica("second")
        self.router = KVAwareRouter(deployment_id=None)
        self.router.initialize_state()
        self.router.update_replicas([self.first, self.second])  # type: ignore[list-item]

    def pending(
        self, prompt: list[int], number: int = 0, adapter: str = "", salt: str = ""
    ) -> PendingRequest:
        request = GenerationRequest(request_id="", prompt=prompt, cache_salt=salt)
        metadata = RequestMetadata("", str(number), multiplexed_model_id=adapter)
        return PendingRequest((request, "small"), {}, metadata)

    async def ranks(self, prompt: list[int], **more: Any) -> list[list[str]]:
        pending = self.pending(prompt, **more)
        ranks = await self.router.choose_replicas([self.first, self.second], pending)  # type: ignore[list-item]
        return [[each.replica_id for each in rank] for rank in ranks]  # type: ignore[misc]

    def send(self, prompt: list[int], to: str, number: int) -> None:
        self.router.on_request_routed(self.pending(prompt, number), to, None)  # type: ignore[arg-type]


LONG = list(range(40))


async def test_tokens_go_where_the_fewest_blocks_are_left_to_compute() -> None:
    routed = TokenRouter()
    assert await routed.ranks(LONG) == [["first", "second"]]
    routed.second.report(LONG)
    assert await routed.ranks([*LONG, 7]) == [["second"], ["first"]]
    assert await routed.ranks([7, *LONG]) == [["first", "second"]]
    assert await routed.ranks(LONG, salt="other") == [["first", "second"]]
    routed.send([100 + each for each in range(80)], "second", number=1)  # 20 blocks, and 10 are cached
    assert await routed.ranks([*LONG, 7]) == [["first"], ["second"]]
    routed.router.on_request_completed("second", "1")  # type: ignore[arg-type]
    assert await routed.ranks([*LONG, 7]) == [["second"], ["first"]]


async def test_what_was_sent_counts_as_cached_until_the_next_report() -> None:
    routed = TokenRouter()
    routed.send(LONG, "first", number=1)
    routed.router.on_request_completed("first", "1")  # type: ignore[arg-type]
    assert await routed.ranks(LONG) == [["first"], ["second"]]
    routed.first.report()
    assert await routed.ranks(LONG) == [["first", "second"]]


async def test_requests_of_other_callers_count_and_replicas_that_are_gone_do_not() -> None:
    routed = TokenRouter()
    routed.first.queue_len = 3
    assert await routed.ranks(LONG) == [["second"], ["first"]]
    routed.send(LONG, "second", number=1)
    routed.router.update_replicas([routed.first])  # type: ignore[list-item]
    routed.router.update_replicas([routed.first, routed.second])  # type: ignore[list-item]
    routed.first.queue_len = 0
    assert await routed.ranks(LONG) == [["first", "second"]]


async def test_a_request_without_tokens_is_routed_by_its_text() -> None:
    routed = TokenRouter()
    metadata = RequestMetadata("", "")
    request = CompletionRequest(model="small", prompt="x" * 200)
    asked = PendingRequest((request,), {}, metadata)
    routed.router.on_request_routed(asked, "second", None)  # type: ignore[arg-type]
    ranks = await routed.router.choose_replicas([routed.first, routed.second], asked)  # type: ignore[list-item]
    assert [[each.replica_id for each in rank] for rank in ranks] == [["second"], ["first"]]  # type: ignore[comparison-overlap]


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
