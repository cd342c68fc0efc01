"""What a plain ASGI server does of the rows of serving: uvicorn with one worker, and Starlette."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from http_load import CHUNKS


async def home(request: Any) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("ok")


async def stream(request: Any) -> Any:
    from starlette.responses import StreamingResponse

    async def parts() -> AsyncIterator[str]:
        for _ in range(CHUNKS):
            yield "x" * 20

    return StreamingResponse(parts(), media_type="text/plain")


def make_app() -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Route

    return Starlette(routes=[Route("/", home), Route("/stream", stream)])


def measure() -> None:
    import server_rows

    command = (
        *(sys.executable, "-m", "uvicorn", "--factory", "peer_uvicorn:make_app", "--port", "{port}"),
        *("--log-level", "warning", "--no-access-log", "--lifespan", "off"),
    )
    server_rows.measure(
        nothing=server_rows.Target(command=command, path="/"),
        stream=server_rows.Target(command=command, path="/stream"),
    )


if __name__ == "__main__":
    measure()
