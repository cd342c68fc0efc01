"""The ingress without its models: how requests reach its endpoints."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from skate.serve.llm._ingress.ingress import OpenAiIngress
from skate.serve.llm._protocol.completions import CompletionRequest

GOOD = {"model": "tiny", "prompt": "hi"}


class Ingress(OpenAiIngress):
    """Answers completions by itself."""

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        if body.user == "teapot":
            raise HTTPException(418, "I am a teapot.")
        if body.user == "mistake":
            raise LookupError("a mistake")
        return JSONResponse({"prompt": body.prompt, "route": request.scope["route"].path})


def client(root_path: str = "", **fields: Any) -> httpx.AsyncClient:
    app = Ingress({}, {}, **fields).__serve_build_asgi_app__()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=root_path)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.fixture(params=["directly", "behind a prefix", "for web pages"])
def http(request: pytest.FixtureRequest) -> httpx.AsyncClient:
    """Return a client of an ingress that finds its endpoints by itself, or by Starlette."""
    match request.param:
        case "behind a prefix":
            return client("/models")
        case "for web pages":
            return client(allowed_origins=["*"])
    return client()


async def test_an_endpoint_gets_the_body_and_its_route(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/completions", json=GOOD)
    assert (answer.status_code, answer.json()) == (200, {"prompt": "hi", "route": "/v1/completions"})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({**GOOD, "temprature": 1}, 400, "There is no field 'temprature'. Did you mean 'temperature'?"),
        ({**GOOD, "user": "teapot"}, 418, "I am a teapot."),
        ([], 400, "The body must be a JSON object, got an array."),
    ],
)
async def test_errors_have_openais_shape(
    http: httpx.AsyncClient, body: Any, status: int, message: str
) -> None:
    answer = await http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)


async def test_errors_of_messages_have_anthropics_shape(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/messages", json={"modell": "tiny"})
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"


async def test_unexpected_errors_are_not_shown(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/completions", json={**GOOD, "user": "mistake"})
    assert answer.status_code == 500
    assert "a mistake" not in answer.text


async def test_other_methods_and_paths_are_errors(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/completions")).status_code == 405
    assert (await http.post("/v1/models")).status_code == 405
    assert (await http.post("/v1/completions/1")).status_code == 404


async def test_a_key_is_checked_before_the_body() -> None:
    async with client(api_keys=["secret"]) as http:
        assert (await http.post("/v1/completions", content=b"{")).status_code == 401
        key = {"authorization": "Bearer secret"}
        assert (await http.post("/v1/completions", content=b"{", headers=key)).status_code == 400
        assert (await http.post("/v1/completions", json=GOOD, headers=key)).status_code == 200
