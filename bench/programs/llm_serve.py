"""A language model behind the HTTP server of `skate llm serve`, against the same engine in one process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import llm_model
import llm_paced
import meter
import psutil

import skate
from skate import serve
from skate.llm import GenerationRequest, SamplingParams, load_engine
from skate.serve.llm import LLMConfig, build_openai_app

job = meter.Job()
Streams = tuple[float, float]  # tokens in a second, and seconds to the first token


@contextlib.contextmanager
def serving(folder: str) -> Iterator[str]:
    """Serve the model, and give the address of the API."""
    program = "import sys; from skate.cli import main; sys.exit(main())"
    command = [sys.executable, "-u", "-c", program, "llm", "serve", folder, "--name", "model", "--port", "0"]
    with subprocess.Popen(
        [*command, "--engine-arg", f"num_threads={job.cpus}"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            address = next(filter(None, (re.search(r"http://\S+/v1", line) for line in server.stderr)))
            yield address[0]
        finally:
            server.terminate()


async def ask(client: httpx.AsyncClient, prompt: list[int], outputs: int) -> float:
    """Stream an answer, and return when its first token came."""
    body = {"model": "model", "prompt": prompt, "max_tokens": outputs, "temperature": 0}
    first = 0.0
    async with client.stream(
        "POST", "completions", json=body | {"ignore_eos": True, "stream": True}
    ) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not first and line.startswith("data: {"):
                first = time.perf_counter()
    return first


async def over_http(address: str, outputs: int) -> Streams:
    """Ask in all streams at once."""
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:
        start = time.perf_counter()
        firsts = await asyncio.gather(*(ask(client, prompt, outputs) for prompt in llm_model.prompts()))
        elapsed = time.perf_counter() - start
    return llm_model.STREAMS * outputs / elapsed, statistics.median(firsts) - start


async def in_process(folder: str) -> Streams:
    """Generate in all streams at once with an engine of this process."""
    engine = load_engine(folder, num_threads=job.cpus)

    async def stream(number: int, prompt: list[int], outputs: int) -> float:
        params = SamplingParams(temperature=0, max_tokens=outputs, ignore_eos=True)
        first = 0.0
        async for _ in engine.generate(
            GenerationRequest(request_id=str(number), prompt=prompt, params=params)
        ):
            first = first or time.perf_counter()
        return first

    for outputs in (2, llm_model.OUTPUTS):  # the first round warms up
        await engine.reset_prefix_cache()
        start = time.perf_counter()
        firsts = await asyncio.gather(
            *(stream(number, prompt, outputs) for number, prompt in enumerate(llm_model.prompts()))
        )
        elapsed = time.perf_counter() - start
    await engine.close()
    return llm_model.STREAMS * llm_model.OUTPUTS / elapsed, statistics.median(firsts) - start


def compare() -> tuple[Streams, Streams]:
    """Return the figures of the server and of the bare engine."""
    with llm_model.write() as folder:
        bare = asyncio.run(in_process(folder))
        with serving(folder) as address:
            asyncio.run(over_http(address, 2))
            served = asyncio.run(over_http(address, llm_model.OUTPUTS))
    return served, bare


def llm_serve_16() -> float:
    """Return how many per cent fewer tokens the server generates."""
    (served, _), (bare, _) = compare()
    return 100 * (1 - served / bare)


def llm_serve_first() -> float:
    """Return how many seconds later the first token of 16 streams comes."""
    (_, served), (_, bare) = compare()
    return served - bare


def llm_serve_start() -> float:
    """Return the seconds from the start of the command to the first token."""
    with llm_model.write() as folder:
        start = time.perf_counter()
        with serving(folder) as address:

            async def first() -> float:
                async with httpx.AsyncClient(base_url=address, timeout=600) as client:
                    return await ask(client, llm_model.prompts()[0], 1)

            return asyncio.run(first()) - start


def llm_serve_cpu() -> float:
    """Return the seconds of CPU that a token takes in the processes of a server whose engine computes nothing."""
    rounds = 8
    with llm_paced.write() as folder:
        config = LLMConfig(
            model_loading_config={"model_id": "model", "model_source": folder},
            llm_engine="llm_paced:start",
            accelerator_config={"kind": "cpu"},
        )
        skate.init(num_cpus=job.cpus, include_dashboard=False)
        serve.start(http_options={"port": 0})
        serve.run(build_openai_app({"llm_configs": [config]}))
        host, port = serve.address()
        address = f"http://{host}:{port}/v1"
        asyncio.run(over_http(address, 2))
        before = seconds_of_children()
        for _ in range(rounds):
            asyncio.run(over_http(address, llm_model.OUTPUTS))
        spent = seconds_of_children() - before
        serve.shutdown()
        skate.shutdown()
    return spent / (rounds * llm_model.STREAMS * llm_model.OUTPUTS)


def seconds_of_children() -> float:
    """Return the CPU time of all processes that this one has started."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return sum(each.user + each.system for each in times)


job.run(llm_serve_16, llm_serve_first, llm_serve_start, llm_serve_cpu)
