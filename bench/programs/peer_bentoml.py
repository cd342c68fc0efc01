"""What BentoML does of the rows of serving: its production server with one worker, without metrics and access log."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator

import bentoml
from http_load import CHUNKS


@bentoml.service(workers=1, metrics={"enabled": False}, logging={"access": {"enabled": False}})
class Peer:
    @bentoml.api
    async def nothing(self) -> str:
        return "ok"

    @bentoml.api
    async def stream(self) -> AsyncGenerator[str, None]:
        for _ in range(CHUNKS):
            yield "x" * 20


def measure() -> None:
    import server_rows

    serve = (sys.executable, "-m", "bentoml", "serve", "peer_bentoml:Peer")
    command = (*serve, "--host", "127.0.0.1", "--port", "{port}")
    # It keeps files in a folder of its own, and reports its use over the network, unless told otherwise.
    with tempfile.TemporaryDirectory(prefix="bench-bentoml-") as home:
        os.environ |= {"BENTOML_HOME": home, "BENTOML_DO_NOT_TRACK": "True"}
        server_rows.measure(
            nothing=server_rows.Target(command=command, path="/nothing", body="{}"),
            stream=server_rows.Target(command=command, path="/stream", body="{}"),
        )


if __name__ == "__main__":
    measure()
