"""Serve a language model on one GPU with `skate llm serve`, against the same engine without HTTP.

The model is the one of `generate.py`. Clients send token numbers and read streams of server-sent events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import generate

EVENT, END = b"data: {", b"data: [DONE]"
TAIL = 1000  # bytes at the end of an answer, which have its number of tokens
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


class Answer(asyncio.Protocol):
    """One request and its stream. It looks only for the first event and the end, so that the client costs little."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._end = asyncio.get_running_loop().create_future()
        self.tail = b""
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Note the first event and the end, which may arrive in two pieces."""
        self.tail = self.tail[-TAIL:] + data
        if not self.first and EVENT in self.tail:
            self.first = time.perf_counter()
        if END in self.tail and not self._end.done():
            self._end.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if the answer is incomplete."""
        if not self._end.done():
            self._end.set_exception(error or ConnectionError(f"the answer ends with {self.tail!r}"))

    async def read(self) -> None:
        """Send the request, and wait for the end of its answer."""
        self._transport.write(self._request)
        await self._end
        self._transport.close()


async def ask(address: str, prompts: list[list[int]], outputs: int) -> tuple[float, float]:
    """Ask in all streams at once; return the tokens in a second, and the median seconds to a first token."""
    url = urlsplit(address)
    answers: list[Answer] = []
    for prompt in prompts:
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
        request = (
            f"POST {url.path}/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        _, answer = await asyncio.get_running_loop().create_connection(
            functools.partial(Answer, request), url.hostname, url.port
        )
        answers.append(answer)
    start = time.perf_counter()
    await asyncio.gather(*(answer.read() for answer in answers))
    elapsed = time.perf_counter() - start
    for answer in answers:
        if f'"completion_tokens":{outputs},'.encode() not in answer.tail:
            sys.exit(f"an answer ends with {answer.tail!r}")
    return len(prompts) * outputs / elapsed, statistics.median(answer.first for answer in answers) - start


async def without_http(folder: Path, vocabulary: int, streams: int, rounds: int) -> list[tuple[float, float]]:
    """Do the same with an engine in this process."""
    from skate.llm import load_engine

    engine = load_engine(folder)
    figures = []
    for number in range(rounds + 1):
        prompts = generate.make_prompts(streams, generate.INPUTS, vocabulary, seed=f"{streams} {number}")
        elapsed, firsts, _ = await generate.generate(engine, prompts, generate.OUTPUTS)
        figures.append((streams * generate.OUTPUTS / elapsed, statistics.median(firsts)))
    await engine.close()
    return figures[1:]


def measure(folder: Path, vocabulary: int, rounds: int, streams: int) -> dict[str, Any]:
    """Return the figures of one number of streams, with and without HTTP."""
    bare = asyncio.run(without_http(folder, vocabulary, streams, rounds))
    served = []
    with serving(folder) as address:
        for number in range(rounds + 1):
            prompts = generate.make_prompts(streams, generate.INPUTS, vocabulary, seed=f"{streams} {number}")
            served.append(asyncio.run(ask(address, prompts, generate.OUTPUTS)))
    figures: dict[str, Any] = {}
    for name, found in (("engine", bare), ("http", served[1:])):
        figures[name] = {
            "tokens_per_s": statistics.median(rate for rate, _ in found),
            "first_token_ms": 1e3 * statistics.median(first for _, first in found),
        }
    return figures


def measure_start(folder: Path, vocabulary: int) -> float:
    """Return the seconds from the start of the command to the first token of an answer."""
    start = time.perf_counter()
    with serving(folder) as address:
        asyncio.run(ask(address, generate.make_prompts(1, generate.INPUTS, vocabulary), 1))
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
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
        figures["start_s"] = [measure_start(folder, config["vocab_size"]) for _ in range(2)]
        for streams in options.streams:
            figures[f"{streams}_streams"] = measure(folder, config["vocab_size"], options.rounds, streams)
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
