"""FastAPI, Starlette and websockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, WebSocket, WebSocketDisconnect
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from websockets.asyncio.client import connect

from skate import serve
from tests.serve.conftest import light
from tests.serve.proxy.test_http import fetch

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


class Item(BaseModel):
    name: str
    price: float = 1.0


def shop() -> Any:
    app = FastAPI()
    router = APIRouter(prefix="/admin")

    def limit(most: int = 10) -> int:
        return most

    @light
    @serve.ingress(app)
    class Shop:
        def __init__(self, stock: int) -> None:
            self.stock = stock

        @app.get("/stock")
        def get_stock(self, least: int = 0) -> dict[str, int]:
            return {"stock": max(self.stock, least)}

        @app.post("/items", status_code=201)
        async def add(self, item: Item, most: int = Depends(limit)) -> Item:
            if item.price > most:
                raise HTTPException(422, "too dear")
            self.stock += 1
            return item

        @app.websocket("/chat")
        async def chat(self, socket: WebSocket) -> None:
            await socket.accept()
            try:
                while True:
                    text = await socket.receive_text()
                    await socket.send_text(f"{text} ({self.stock})")
            except WebSocketDisconnect:
                self.stock = -1

        def plain(self) -> int:
            return self.stock

    app.include_router(router)
    return Shop


def test_routes_may_be_methods(run: Callable[..., Any], url: str) -> None:
    handle = run(shop().bind(3))
    assert fetch(url, "/stock").json() == {"stock": 3}
    assert fetch(url, "/stock?least=5").json() == {"stock": 5}
    answer = fetch(url, "/items", "POST", '{"name": "tea"}', {"content-type": "application/json"})
    assert (answer.status, answer.json()) == (201, {"name": "tea", "price": 1.0})
    assert fetch(url, "/stock").json() == {"stock": 4}
    assert handle.plain.remote().result() == 4


def test_what_fastapi_refuses_is_refused(run: Callable[..., Any], url: str) -> None:
    run(shop().bind(0))
    assert fetch(url, "/stock?least=x").status == 422
    assert fetch(url, "/nowhere").status == 404
    dear = fetch(url, "/items", "POST", '{"name": "tea", "price": 50}', {"content-type": "application/json"})
    assert dear.json() == {"detail": "too dear"}


def test_documentation_is_found_below_the_prefix(run: Callable[..., Any], url: str) -> None:
    run(shop().bind(0), route_prefix="/shop")
    assert fetch(url, "/shop/stock").json() == {"stock": 0}
    schema = fetch(url, "/shop/openapi.json").json()
    assert set(schema["paths"]) == {"/stock", "/items"}
    assert "/shop/openapi.json" in fetch(url, "/shop/docs").text


def test_a_websocket_holds_a_conversation(run: Callable[..., Any], url: str) -> None:
    handle = run(shop().bind(7))

    async def talk() -> list[str]:
        async with connect(url.replace("http", "ws") + "/chat") as socket:
            heard = []
            for text in ("a", "b"):
                await socket.send(text)
                heard.append(await socket.recv())
            return heard

    assert asyncio.run(talk()) == ["a (7)", "b (7)"]
    while handle.plain.remote().result() != -1:
        pass  # the replica hears that the client has left


def least(number: Annotated[int, Query(ge=1)]) -> int:
    return number


@pytest.mark.parametrize("is_whole", [True, False], ids=["an application", "a router"])
def test_routers_in_routers_may_have_annotations_as_text(
    is_whole: bool, run: Callable[..., Any], url: str
) -> None:
    app = FastAPI() if is_whole else APIRouter()
    outer, inner = APIRouter(prefix="/outer"), APIRouter(prefix="/inner", dependencies=[Depends(least)])

    @light
    @serve.ingress(app)
    class Counts:
        @inner.get("/method")
        def method(
            self, found: Annotated[int, Depends(least)], often: Annotated[int, Query(le=9)] = 1
        ) -> list[int]:
            return [found] * often

        outer.include_router(inner)
        app.include_router(outer)

    run(Counts.bind())
    assert fetch(url, "/outer/inner/method?number=7&often=2").json() == [7, 7]
    assert fetch(url, "/outer/inner/method?number=0").status == 422
    assert set(fetch(url, "/openapi.json").json()["paths"]) == {"/outer/inner/method"}


def test_a_mounted_application_may_have_annotations_as_text(run: Callable[..., Any], url: str) -> None:
    app, mounted, router = FastAPI(), FastAPI(), APIRouter()

    @router.get("/number")
    def number(found: Annotated[int, Depends(least)]) -> int:
        return found

    mounted.include_router(router)
    app.mount("/mounted", mounted)

    @light
    @serve.ingress(app)
    class Mounts:
        pass

    run(Mounts.bind())
    assert fetch(url, "/mounted/number?number=3").json() == 3


def test_a_builder_makes_the_application_where_it_runs(run: Callable[..., Any], url: str) -> None:
    def build() -> Starlette:
        return Starlette(routes=[Route("/", lambda request: PlainTextResponse("built"))])

    @light
    @serve.ingress(build)
    class Built:
        pass

    run(Built.bind())
    assert fetch(url).text == "built"


def test_the_lifespan_of_an_application_is_that_of_the_replica(run: Callable[..., Any], url: str) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.word = "awake"
        yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    def word() -> str:
        return str(app.state.word)

    @light
    @serve.ingress(app)
    class Lives:
        pass

    run(Lives.bind())
    assert fetch(url).json() == "awake"


def test_an_ingress_is_a_class_without_call(run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="class"):
        serve.ingress(FastAPI())(lambda: None)  # type: ignore[arg-type]

    class Calls:
        def __call__(self) -> None: ...

    with pytest.raises(ValueError, match="__call__"):
        serve.ingress(FastAPI())(Calls)


def test_deployments_may_share_an_application(run: Callable[..., Any], url: str) -> None:
    app = FastAPI()

    @app.get("/shared")
    def shared() -> str:
        return "of no class"

    @light
    @serve.ingress(app)
    class First:
        @app.get("/")
        def whole(self) -> str:
            return type(self).__name__

        @app.get("/first")
        def own(self) -> str:
            return "own"

        @app.get("/twice")
        def twice(self) -> str:
            return f"{type(self).__name__} without a number"

        @app.get("/twice/{number}")
        def twice(self, number: int) -> str:  # type: ignore[no-redef]  # noqa: F811  # each has its route
            return f"{type(self).__name__} {number}"

    @light
    @serve.ingress(app)
    class Second:
        @app.get("/")
        def whole(self) -> str:
            return type(self).__name__

    run(First.bind(), name="first", route_prefix="/1")
    run(Second.bind(), name="second", route_prefix="/2")
    assert [fetch(url, f"/{n}/").json() for n in (1, 2)] == ["First", "Second"]
    assert [fetch(url, f"/{n}/shared").json() for n in (1, 2)] == ["of no class"] * 2
    assert [fetch(url, f"/{n}/first").status for n in (1, 2)] == [200, 404]
    assert fetch(url, "/1/twice").json() == "First without a number"
    assert fetch(url, "/1/twice/2").json() == "First 2"


def test_an_application_may_be_all_there_is_or_be_made_by_the_class(
    run: Callable[..., Any], url: str
) -> None:
    def build() -> Any:
        app = FastAPI()

        @app.get("/")
        def bound() -> list[int]:
            return list(serve.get_replica_context().servable_object.args)  # type: ignore[union-attr]

        return app

    run(light(serve.ingress(build)()).bind(1, 2), name="bare", route_prefix="/bare")
    assert fetch(url, "/bare/").json() == [1, 2]

    @light
    @serve.ingress()
    class Late:
        def __init__(self, word: str) -> None:
            self.word = word

        def __serve_build_asgi_app__(self) -> Any:
            async def say(_: Any) -> PlainTextResponse:
                return PlainTextResponse(self.word)

            return Starlette(routes=[Route("/", say)])

    run(Late.bind("late"), name="late", route_prefix="/late")
    assert fetch(url, "/late/").text == "late"
    with pytest.raises(ValueError, match="__serve_build_asgi_app__"):
        serve.ingress()(type("Empty", (), {}))
