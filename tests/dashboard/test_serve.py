"""Serve and language models on the dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from skate import serve
from skate.serve.llm import build_openai_app
from tests.conftest import LeakWatch
from tests.dashboard.support import dashboard
from tests.llm.serve.conftest import config


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, num_replicas=2)
class Greeter:
    def __call__(self, request: Any) -> str:
        if request.query_params.get("fail"):
            raise ValueError("on purpose")
        return "hello"


@pytest.fixture(scope="module")
def url(leak_watch: LeakWatch) -> Iterator[str]:
    with leak_watch.shared_session(num_cpus=4, log_to_driver=False):
        serve.start(http_options={"port": 0})
        serve.run(Greeter.bind(), name="greeting", route_prefix="/greet")
        serve.run(build_openai_app({"llm_configs": [config()]}), name="models", route_prefix="/llm")
        host, port = serve.address()
        yield f"http://{host}:{port}"
        serve.shutdown()


async def test_applications_are_shown_with_rates_and_latencies(url: str) -> None:
    async with httpx.AsyncClient() as client:
        for _ in range(10):
            assert (await client.get(f"{url}/greet")).text == "hello"
        assert (await client.get(f"{url}/greet?fail=1")).status_code == 500
    async with dashboard() as page:

        def is_counted(data: dict[str, Any]) -> bool:
            return bool(_greeter(data)["requests"] >= 11 and _greeter(data)["errors"] >= 1)

        found = await page.eventually("/state/serve", is_counted)
        (app,) = [app for app in found["applications"] if app["name"] == "greeting"]
        assert (app["route"], app["status"]) == ("/greet", "RUNNING")
        greeter = _greeter(found)
        assert greeter["target"] == 2
        assert [each["state"] for each in greeter["replicas"]] == ["RUNNING", "RUNNING"]
        assert all(each["pid"] for each in greeter["replicas"])
        latency = greeter["latency"]
        assert len(latency["counts"]) == len(latency["buckets_ms"]) + 1
        assert sum(latency["counts"]) >= 11
        assert latency["p50"] <= latency["p90"] <= latency["p99"]
        assert found["http"] == url
        assert [proxy["status"] for proxy in found["proxies"]] == ["HEALTHY"]


def _greeter(data: dict[str, Any]) -> dict[str, Any]:
    (app,) = [app for app in data["applications"] if app["name"] == "greeting"]
    deployment: dict[str, Any] = app["deployments"][0]
    return deployment


async def test_a_model_is_shown_and_can_be_talked_to(url: str) -> None:
    async with dashboard() as page:
        (model,) = (await page.get("/state/llm"))["models"]
        assert (model["id"], model["application"], model["base_url"]) == ("tiny", "models", f"{url}/llm/v1")
        assert model["ttft"] == {"p50": None, "p90": None, "p99": None} or model["tokens"]
        chat = {"model": "tiny", "messages": [{"role": "user", "content": "say hello there"}], "stream": True}
        response = await page.client.post("/actions/llm/chat", json=chat)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[0].removeprefix("data: "))["object"] == "chat.completion.chunk"
        found = await page.eventually("/state/llm", lambda data: data["models"][0]["tokens"] > 0)
        (model,) = found["models"]
        assert model["ttft"]["p50"] is not None
        assert model["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"not json", 400, "must be JSON"),
        (b"[]", 400, "must be JSON"),
        (b'{"model": "large", "messages": []}', 404, "the models are: tiny"),
    ],
)
async def test_a_wrong_chat_is_explained(url: str, body: bytes, status: int, says: str) -> None:
    async with dashboard() as page:
        assert says in (await page.post("/actions/llm/chat", status=status, content=body))["detail"]


async def test_an_error_of_the_endpoint_is_passed_on(url: str) -> None:
    async with dashboard() as page:
        response = await page.client.post("/actions/llm/chat", json={"model": "tiny", "messages": "none"})
        assert response.status_code in (400, 422)
        assert "messages" in response.text
