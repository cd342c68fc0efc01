"""Serve a language model on one GPU with `skate llm serve`, against the same engine without HTTP.

The model is the one of `generate.py`. Clients send token numbers and read streams of server-sent events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import generate

EVENT, END = b"data: {", b"data: [DONE]"
TAIL = 1000  # bytes at the end of an answer, which have its number of tokens
STEADY_REQUESTS = 10  # of each stream
PREPARATION = 3.0  # seconds after the start, in which an engine without requests records CUDA graphs
PROGRAM = "import sys; from skate.cli import main; sys.exit(main())"


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the model, and give the address of the API."""
    command = [
        sys.executable,
        "-u",
        "-c",
        PROGRAM,
        "llm",
        "serve",
        str(folder),
        "--name",
        "model",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if address := re.search(r"http://\S+/v1", line):
                    break
                print(line, end="", file=sys.stderr)
            else:
                sys.exit("the server has not started")
            yield address[0]
        finally:
            server.terminate()


class Client(asyncio.Protocol):
    """A connection that sends one request after another and reads their streams.

    It looks only for the first event and the end of an answer, so that it costs little.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Note the first event and the end, which may arrive in two pieces."""
        self._tail = self._tail[-TAIL:] + data
        if not self._first and EVENT in self._tail:
            self._first = time.perf_counter()
        if END in self._tail and not self._end.done():
            self._end.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if an answer is incomplete."""
        if not self._end.done():
            self._end.set_exception(error or ConnectionError(f"the answer ends with {self._tail!r}"))

    async def ask(self, request: bytes, outputs: int) -> float:
        """Send a request, and wait for the end of its answer; return the seconds to its first event."""
        self._tail, self._first = b"", 0.0
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        self._transport.write(request)
        await self._end
        if f'"completion_tokens":{outputs},'.encode() not in self._tail:
            sys.exit(f"an answer ends with {self._tail!r}")
        return self._first - start

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


def make_loads(kind: str, streams: int, vocabulary: int, number: int) -> list[list[tuple[list[int], int]]]:
    """Return what each stream asks for, in order: prompts, and how many tokens it wants.

    In a burst every stream asks once, at the same moment. Under steady load each asks ten times, for answers of
    different lengths, so that requests arrive while others are answered.
    """
    rng = random.Random(f"{kind} {streams} {number}")
    requests = 1 if kind == "burst" else STEADY_REQUESTS
    prompts = generate.make_prompts(
        streams * requests, generate.INPUTS, vocabulary, seed=f"{kind} {streams} {number}"
    )
    spread = 0 if kind == "burst" else generate.OUTPUTS // 2
    outputs = [generate.OUTPUTS + rng.randint(-spread, spread) for _ in prompts]
    return [list(zip(prompts[each::streams], outputs[each::streams], strict=True)) for each in range(streams)]


async def run_streams(
    loads: list[list[tuple[Any, int]]], ask: Callable[[int, Any, int], Awaitable[float]]
) -> tuple[float, float]:
    """Let all streams ask; return the tokens in a second, and the median seconds to a first token."""
    firsts: list[float] = []

    async def stream(number: int, load: list[tuple[Any, int]]) -> None:
        for request, outputs in load:
            firsts.append(await ask(number, request, outputs))

    start = time.perf_counter()
    await asyncio.gather(*(stream(number, load) for number, load in enumerate(loads)))
    elapsed = time.perf_counter() - start
    return sum(outputs for load in loads for _, outputs in load) / elapsed, statistics.median(firsts)


async def with_http(address: str, loads: list[list[tuple[list[int], int]]]) -> tuple[float, float]:
    """Ask over HTTP, each stream over a connection that is open before the clock starts."""
    url = urlsplit(address)
    clients: list[Client] = []
    for _ in loads:
        _, client = await asyncio.get_running_loop().create_connection(Client, url.hostname, url.port)
        clients.append(client)

    def make_request(prompt: list[int], outputs: int) -> bytes:
        body = json.dumps(
            {
                "model": "model",
                "prompt": prompt,
                "max_tokens": outputs,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        return (
            f"POST {url.path}/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    requests = [[(make_request(*each), each[1]) for each in load] for load in loads]
    figures = await run_streams(
        requests, lambda number, request, outputs: clients[number].ask(request, outputs)
    )
    for client in clients:
        client.close()
    return figures


async def without_http(engine: Any, loads: list[list[tuple[list[int], int]]]) -> tuple[float, float]:
    """Do the same with an engine in this process."""
    from skate.llm import GenerationRequest, SamplingParams

    numbers = itertools.count()

    async def ask(number: int, prompt: list[int], outputs: int) -> float:
        params = SamplingParams(temperature=0, max_tokens=outputs, ignore_eos=True)
        request = GenerationRequest(request_id=f"{number} {next(numbers)}", prompt=prompt, params=params)
        start, first = time.perf_counter(), 0.0
        async for _ in engine.generate(request):
            first = first or time.perf_counter()
        return first - start

    return await run_streams(loads, ask)


async def measure_engine(
    folder: Path, vocabulary: int, rounds: int, loads: list[tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return the figures of each load without HTTP."""
    from skate.llm import load_engine

    engine = load_engine(folder)
    await asyncio.sleep(PREPARATION)
    figures = {}
    for kind, streams in loads:
        rounds_of = [
            await without_http(engine, make_loads(kind, streams, vocabulary, number))
            for number in range(rounds + 1)
        ]
        figures[kind, streams] = rounds_of[1:]
    await engine.close()
    return figures


def measure(folder: Path, vocabulary: int, rounds: int, loads: list[tuple[str, int]]) -> dict[str, Any]:
    """Return the figures of each load, with and without HTTP."""
    bare = asyncio.run(measure_engine(folder, vocabulary, rounds, loads))
    figures: dict[str, Any] = {}
    with serving(folder) as address:
        time.sleep(PREPARATION)
        for kind, streams in loads:
            served = [
                asyncio.run(with_http(address, make_loads(kind, streams, vocabulary, number)))
                for number in range(rounds + 1)
            ]
            figures[f"{kind}_{streams}"] = {
                name: {
                    "tokens_per_s": round(statistics.median(rate for rate, _ in found)),
                    "first_token_ms": round(1e3 * statistics.median(first for _, first in found), 1),
                }
                for name, found in (("engine", bare[kind, streams]), ("http", served[1:]))
            }
    return figures


def measure_start(folder: Path, vocabulary: int) -> float:
    """Return the seconds from the start of the command to the first token of an answer."""
    start = time.perf_counter()
    with serving(folder) as address:
        prompt = generate.make_prompts(1, generate.INPUTS, vocabulary)[0]
        asyncio.run(with_http(address, [[(prompt, 1)]]))
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--no-start", action="store_true", help="do not measure the start of the command")
    parser.add_argument("--tiny", action="store_true", help="a small model, to check the program")
    options = parser.parse_args()
    config = generate.CONFIG
    if options.tiny:
        generate.INPUTS, generate.OUTPUTS, config = 8, 8, generate.TINY
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name() if device == "cuda" else "CPU"}
    with tempfile.TemporaryDirectory(prefix="bench-llm-") as holder:
        folder = Path(holder)
        generate.write_model(folder, config, device)
        if device == "cuda":
            torch.cuda.empty_cache()
        if not options.no_start:
            figures["start_s"] = [measure_start(folder, config["vocab_size"]) for _ in range(2)]
        loads = [(kind, streams) for streams in options.streams for kind in ("burst", "steady")]
        figures |= measure(folder, config["vocab_size"], options.rounds, loads)
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
