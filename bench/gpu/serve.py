"""Serve a language model on one GPU with `skate llm serve`, against the same engine without HTTP.

The model is the one of `generate.py`. Clients send token numbers and read streams of server-sent events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import generate
import httpx

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


async def stream(client: httpx.AsyncClient, prompt: list[int], outputs: int) -> AsyncIterator[float]:
    """Yield when each piece of an answer arrives."""
    body = {"model": "model", "prompt": prompt, "max_tokens": outputs, "temperature": 0, "ignore_eos": True}
    async with client.stream("POST", "completions", json={**body, "stream": True}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield time.perf_counter()


async def ask(address: str, prompts: list[list[int]], outputs: int) -> tuple[float, float]:
    """Ask in all streams at once; return the tokens in a second, and the median seconds to a first token."""
    limits = httpx.Limits(max_connections=len(prompts))
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:
        start = time.perf_counter()

        async def first_of(prompt: list[int]) -> float:
            return min([at async for at in stream(client, prompt, outputs)])

        firsts = await asyncio.gather(*map(first_of, prompts))
        elapsed = time.perf_counter() - start
    return len(prompts) * outputs / elapsed, statistics.median(firsts) - start


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
