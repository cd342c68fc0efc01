"""Who may use the dashboard."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from skate.dashboard._security import Gate, new_token, page_url
from tests.dashboard.support import HOST, PORT, TOKEN, client_of


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("inside")(scope, receive, send)


@pytest.fixture
def client() -> httpx.AsyncClient:
    return client_of(Gate(inside, TOKEN, HOST, PORT))


AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


async def test_a_request_without_a_token_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.get("/state/tasks")
    assert response.status_code == 401
    assert "Authorization: Bearer" in response.json()["detail"]


@pytest.mark.parametrize("given", ["Bearer wrong", "Bearer", "Basic c2VjcmV0", "Bearer s\u00e9cret"])
async def test_a_wrong_token_is_refused(client: httpx.AsyncClient, given: str) -> None:
    response = await client.get("/state/tasks", headers={"Authorization": given.encode()})
    assert response.status_code == 401


async def test_a_browser_without_a_token_is_told_where_the_url_is(client: httpx.AsyncClient) -> None:
    response = await client.get("/", headers={"Accept": "text/html"})
    assert response.status_code == 401
    assert "skate dashboard" in response.text
    assert response.headers["content-type"].startswith("text/html")


async def test_the_url_with_the_token_sets_a_cookie_and_disappears_from_the_address(
    client: httpx.AsyncClient,
) -> None:
    response = await client.get(f"/logs?token={TOKEN}&name=node.log")
    assert response.status_code == 303
    assert response.headers["location"] == "/logs?name=node.log"
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"skate_token_{PORT}={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await client.get("/state/tasks")).text == "inside"


async def test_a_url_with_a_wrong_token_sets_no_cookie(client: httpx.AsyncClient) -> None:
    response = await client.get("/?token=wrong")
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_the_token_cannot_be_used_to_lead_to_another_site(client: httpx.AsyncClient) -> None:
    response = await client.get(f"http://{HOST}:{PORT}//evil.example/?token={TOKEN}")
    assert response.headers["location"] == "/evil.example/"


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", "", "[::1", "a:b"]
)
async def test_a_forged_host_is_refused_even_with_the_token(client: httpx.AsyncClient, host: str) -> None:
    response = await client.get("/", headers={**AUTHORIZED, "Host": host})
    assert response.status_code == 403


@pytest.mark.parametrize("host", ["localhost:8265", "127.0.0.1:8265", "[::1]:8265", "localhost:9000"])
async def test_the_names_of_this_machine_are_accepted(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/", headers={**AUTHORIZED, "Host": host})).text == "inside"


async def test_a_server_on_all_addresses_accepts_addresses_but_no_names() -> None:
    client = client_of(Gate(inside, TOKEN, "0.0.0.0", PORT), **AUTHORIZED)
    assert (await client.get("/", headers={"Host": "192.0.2.7:8265"})).text == "inside"
    assert (await client.get("/", headers={"Host": "evil.example:8265"})).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", ["http://evil.example", f"http://evil.example:{PORT}", "null"])
async def test_a_change_from_another_origin_is_refused(
    client: httpx.AsyncClient, method: str, origin: str
) -> None:
    response = await client.request(method, "/actions", headers={**AUTHORIZED, "Origin": origin})
    assert response.status_code == 403


async def test_a_change_from_the_same_origin_or_from_a_program_is_accepted(client: httpx.AsyncClient) -> None:
    own = {**AUTHORIZED, "Origin": f"http://{HOST}:{PORT}"}
    assert (await client.post("/actions", headers=own)).text == "inside"
    assert (await client.post("/actions", headers=AUTHORIZED)).text == "inside"


async def test_every_response_protects_the_page(client: httpx.AsyncClient) -> None:
    for headers in (AUTHORIZED, {}):
        found = (await client.get("/", headers=headers)).headers
        assert "default-src 'self'" in found["content-security-policy"]
        assert "frame-ancestors 'none'" in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("origin", "accepted"), [(f"http://{HOST}:{PORT}", True), ("http://evil.example", False)]
)
async def test_a_websocket_needs_the_same_origin(origin: str, accepted: bool) -> None:
    passed = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["path"])

    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = {"host": f"{HOST}:{PORT}", "origin": origin, "authorization": f"Bearer {TOKEN}"}
    scope = {
        "type": "websocket",
        "path": "/tail",
        "query_string": b"",
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
    }
    await Gate(app, TOKEN, HOST, PORT)(scope, receive, send)  # type: ignore[arg-type]
    assert bool(passed) == accepted
    assert [message["type"] for message in sent] == ([] if accepted else ["websocket.close"])


def test_tokens_are_random_and_urls_hold_them() -> None:
    assert new_token() != new_token()
    assert page_url("0.0.0.0", 1, "t+") == "http://127.0.0.1:1/?token=t%2B"
    assert page_url("::1", 1, "t") == "http://[::1]:1/?token=t"
