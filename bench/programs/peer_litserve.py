"""What LitServe does of the rows of serving: one process for HTTP, and one worker, which calls coroutines."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import litserve
from http_load import CHUNKS


class Nothing(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    async def predict(self, request: Any) -> str:
        return "ok"


class Stream(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    async def predict(self, request: Any) -> AsyncIterator[str]:
        for _ in range(CHUNKS):
            yield "x" * 20

    async def encode_response(self, output: AsyncIterator[str]) -> AsyncIterator[str]:
        async for part in output:
            yield part


def serve(kind: str, port: int) -> None:
    # LitServe ends its processes at an interrupt; at SIGTERM it would leave them. They end at SIGTERM as usual.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.register_at_fork(after_in_child=functools.partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    streams = kind == "stream"
    api = (Stream if streams else Nothing)(enable_async=True, stream=streams)
    # `fast_queue` is what its documentation advises for more than a hundred requests a second.
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=port,
        num_api_servers=1,
        log_level="warning",
        access_log=False,
        generate_client_file=False,
    )


def measure() -> None:
    import server_rows

    def target(kind: str) -> server_rows.Target:
        command = (sys.executable, __file__, "serve", kind, "{port}")
        return server_rows.Target(command=command, path="/predict", body="{}")

    server_rows.measure(nothing=target("nothing"), stream=target("stream"))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        measure()
