"""A shop with an API: a FastAPI application with the usual parts, for Serve and for a plain server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from skate import serve
from tests.serve.conftest import light

STOCK = 20
IMAGE = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
FAILED = {"description": "What is wrong", "content": {"application/json": {"schema": {"type": "object"}}}}
# FastAPI declares 200 and 422 alone: all else that it answers by itself is declared here.
EVERYWHERE: dict[int | str, dict[str, Any]] = {400: FAILED, 404: FAILED, 405: FAILED}


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    article: str = Field(min_length=1, max_length=40)
    amount: int = Field(ge=1, le=10)
    size: Size = Size.SMALL
    gift: Gift | None = None


class Gift(BaseModel):
    model_config = ConfigDict(extra="forbid")
    card: str | None = None
    inside: list[Line] = Field(default=[], max_length=2)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    customer: str = Field(pattern="^[a-z]{1,12}$")
    lines: list[Line] = Field(min_length=1, max_length=3)
    notes: dict[str, str] = {}


class Placed(BaseModel):
    number: int
    price: int
    order: Order


class SoldOutError(Exception):
    """There is less left than was ordered."""

    def __init__(self, left: int) -> None:
        super().__init__(left)
        self.left = left


class Page(BaseModel):
    start: int
    most: int


def page(start: Annotated[int, Query(ge=0)] = 0, most: Annotated[int, Query(ge=1, le=50)] = 10) -> Page:
    """Say which part of a list is wanted."""
    return Page(start=start, most=most)


async def sold_out(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SoldOutError)
    return JSONResponse({"left": error.left}, 409, {"x-left": str(error.left)})


class Prices:
    """What things cost: a deployment, and a plain object."""

    def of(self, amounts: list[int], sizes: list[str]) -> int:
        return sum(
            amount * (3 if size == Size.LARGE else 2) for amount, size in zip(amounts, sizes, strict=True)
        )


class Ask(Protocol):
    """Ask for prices, wherever they are known."""

    async def __call__(self, amounts: list[int], sizes: list[str]) -> int: ...


def made_up(number: int) -> Placed:
    """Return the order that has a number: the shop keeps nothing, so that no request changes the answer to another."""
    size = Size.LARGE if number % 3 else Size.SMALL
    line = Line(article=f"tea no. {number}", amount=number % 10 + 1, size=size)
    return Placed(number=number, price=2 * number, order=Order(customer="abc"[number % 3], lines=[line]))


def expect_order(number: Annotated[int, Path(ge=1, le=9)]) -> Placed:
    """Find an order; only even numbers have one."""
    if number % 2:
        raise HTTPException(404, f"there is no order {number}")
    return made_up(number)


def make_counter() -> type:
    """Return the class whose methods answer; a new one each time, since an ingress changes what it is made of."""

    class Counter:
        def __init__(self, prices: Any) -> None:
            self.ask: Ask = prices.of.remote if isinstance(prices, serve.handle.DeploymentHandle) else prices

        async def order(self, order: Order, response: Response, dry: bool = False) -> Placed:
            lines = order.lines
            price = await self.ask([line.amount for line in lines], [line.size for line in lines])
            if price > STOCK:
                raise SoldOutError(STOCK)
            number = 0 if dry else price
            response.headers["location"] = f"/orders/{number}"
            return Placed(number=number, price=price, order=order)

        async def orders(
            self,
            part: Annotated[Page, Depends(page)],
            size: Annotated[list[Size] | None, Query()] = None,
            x_customer: Annotated[str | None, Header(max_length=20)] = None,
        ) -> list[Placed]:
            start = min(part.start, 1000)
            return [
                each
                for each in map(made_up, range(start, start + part.most))
                if x_customer in (None, each.order.customer)
                and (size is None or each.order.lines[0].size in size)
            ]

        def one(self, placed: Annotated[Placed, Depends(expect_order)]) -> Placed:
            return placed

        async def withdraw(self, placed: Annotated[Placed, Depends(expect_order)]) -> None:
            assert placed.number % 2 == 0

        async def receipt(
            self, placed: Annotated[Placed, Depends(expect_order)], width: int = 8
        ) -> StreamingResponse:
            async def lines() -> AsyncIterator[str]:
                for number in range(placed.number):
                    yield f"{number:>{min(abs(width), 99)}} {placed.order.lines[0].article}\n"
                yield "thank you ☕\n"

            return StreamingResponse(lines(), media_type="text/plain")

        async def put_image(
            self, name: Annotated[str, Path(pattern="^[a-z]{1,8}$")], request: Request
        ) -> Any:
            image = b"".join([part async for part in request.stream()])
            if not image:
                raise HTTPException(400, "an image has bytes")
            return {"name": name, "bytes": len(image), "sum": sum(image)}

        async def image(
            self, name: Annotated[str, Path(pattern="^[a-z]{1,8}$")], seen: Annotated[int, Cookie(ge=0)] = 0
        ) -> Response:
            if len(name) > 4:
                raise HTTPException(404, "no such image", {"x-seen": str(seen)})
            answer = Response(name.encode() * 1000, media_type="image/png")
            answer.set_cookie("seen", str(min(seen, 1000) + 1))
            answer.set_cookie("last", name)
            return answer

    return Counter


def declare(app: FastAPI, counter: Any) -> None:
    """Add the routes; they are methods of a class, or of an object."""
    app.add_exception_handler(SoldOutError, sold_out)
    created: dict[int | str, dict[str, Any]] = {
        201: {"headers": {"location": {"schema": {"type": "string"}}}}
    }
    app.post("/orders", status_code=201, responses={**created, 409: FAILED})(counter.order)
    app.get("/orders")(counter.orders)
    numbered = APIRouter(prefix="/orders/{number}", tags=["one order"])
    numbered.get("")(counter.one)
    numbered.delete("", status_code=204)(counter.withdraw)
    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    numbered.get("/receipt", response_class=StreamingResponse, responses=text)(counter.receipt)
    app.include_router(numbered)
    images = APIRouter()
    body = {
        "requestBody": {"required": True, "content": {"image/png": IMAGE, "application/octet-stream": IMAGE}}
    }
    images.put("/{name}", openapi_extra=body)(counter.put_image)
    image = {200: {"content": {"image/png": IMAGE}}}
    images.get("/{name}", response_class=Response, responses=image)(counter.image)
    app.include_router(images, prefix="/images")


def served() -> serve.Application:
    """Return the shop as an application of Serve: prices are a deployment of their own."""
    app = FastAPI(title="Shop", responses=EVERYWHERE)
    counter = make_counter()
    declare(app, counter)
    few = {"max_ongoing_requests": 2}  # requests that never end would soon keep out all others
    return light(serve.ingress(app)(counter), **few).bind(light(Prices, **few).bind())


def plain() -> FastAPI:
    """Return the shop without Serve."""
    app = FastAPI(title="Shop", responses=EVERYWHERE)

    async def ask(amounts: list[int], sizes: list[str]) -> int:
        return Prices().of(amounts, sizes)

    declare(app, make_counter()(ask))
    return app
