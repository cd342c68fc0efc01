"""Long prompts beside streams on one GPU: one engine that does both, and prompts computed by a second one.

The model is the one of `generate.py`. Streams generate all the time, and every quarter of a second a long prompt
arrives, of which two tokens are wanted. With one engine, the streams wait while the prompt is computed. With
`build_pd_openai_app`, another process computes it on the same GPU, and its keys and values go through the memory of
the host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import generate

STREAMS, OUTPUTS = 16, 1024
LONG = 3500  # tokens of a long prompt
INTERVAL = 0.25  # seconds between the arrivals of long prompts
MEMORY_SHARE = 0.4  # of the GPU, for each engine
PREPARATION = 8.0  # seconds after the start, in which engines without requests record CUDA graphs


def make_app(folder: Path, kind: str, config: dict[str, Any]) -> Any:
    """Return the application: "one" engine, or two that "split" the work."""
    import torch

    from skate.serve.llm import build_openai_app, build_pd_openai_app

    has_gpu = torch.cuda.is_available()
    share = 1 if kind == "one" else 0.5
    model = {
        "model_loading_config": {"model_id": "model", "model_source": str(folder)},
        "engine_kwargs": {"gpu_memory_utilization": MEMORY_SHARE} if has_gpu else {"num_threads": 1},
        "deployment_config": {
            "ray_actor_options": {"num_gpus": share} if has_gpu else {"num_cpus": 0.5},
            "max_ongoing_requests": 256,
        },
        **({} if has_gpu else {"accelerator_config": {"kind": "cpu"}}),
    }
    if kind == "one":
        return build_openai_app({"llm_configs": [model]})
    return build_pd_openai_app({"prefill_config": model, "decode_config": model})


async def events(address: str, body: dict[str, Any]) -> AsyncIterator[tuple[float, bytes]]:
    """Send a request, and yield the lines of its answer with the times at which they arrive."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    content = json.dumps(body)
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()
    )
    status = await reader.readline()
    if b"200" not in status:
        sys.exit(f"the answer is {status!r} {await reader.read()!r}")
    async for line in reader:
        yield time.perf_counter(), line
    writer.close()


async def run(
    address: str, config: dict[str, Any], outputs: int, long: int, with_long: bool, seed: str
) -> dict[str, Any]:
    """Let the streams generate, with or without long prompts beside them, and return what was measured."""
    body = {"model": "model", "temperature": 0, "ignore_eos": True, "stream": True}
    gaps: list[float] = []
    firsts: list[float] = []
    timings: list[dict[str, float]] = []
    vocabulary = config["vocab_size"]

    async def stream(prompt: list[int]) -> None:
        before = 0.0
        async for now, line in events(address, {**body, "prompt": prompt, "max_tokens": outputs}):
            if line.startswith(b"data: {"):
                if before:
                    gaps.append(now - before)
                before = now

    async def ask(prompt: list[int]) -> None:
        start = time.perf_counter()
        options = {"stream_options": {"include_usage": True}}
        async for now, line in events(address, {**body, **options, "prompt": prompt, "max_tokens": 2}):
            if line.startswith(b"data: {"):
                if start:
                    firsts.append(now - start)
                    start = 0.0
                found = json.loads(line.removeprefix(b"data: "))
                if found.get("timing"):
                    timings.append(found["timing"])

    async def arrive() -> None:
        prompts = generate.make_prompts(200, long, vocabulary, seed=f"long {seed}")
        async with asyncio.TaskGroup() as asked:
            for prompt in prompts:
                if all(task.done() for task in streams):
                    break
                asked.create_task(ask(prompt))
                await asyncio.sleep(INTERVAL)

    start = time.perf_counter()
    short = generate.make_prompts(STREAMS, generate.INPUTS, vocabulary, seed=f"short {seed}")
    streams = [asyncio.create_task(stream(prompt)) for prompt in short]
    arrivals = asyncio.create_task(arrive()) if with_long else None
    await asyncio.gather(*streams)
    elapsed = time.perf_counter() - start
    if arrivals is not None:
        await arrivals
    gaps.sort()
    figures: dict[str, Any] = {
        "tokens_per_s": round(STREAMS * outputs / elapsed),
        "gap_p50_ms": round(1e3 * statistics.median(gaps), 2),
        "gap_p99_ms": round(1e3 * gaps[int(0.99 * len(gaps))], 2),
        "gap_max_ms": round(1e3 * gaps[-1], 2),
    }
    if firsts:
        figures |= {"long_prompts": len(firsts), "first_token_ms": round(1e3 * statistics.median(firsts), 1)}
    for part in ("prefill", "transfer"):
        if found := [timing[part] for timing in timings if part in timing]:
            figures[f"{part}_ms"] = round(1e3 * statistics.median(found), 1)
    return figures


def measure(folder: Path, config: dict[str, Any], kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Serve the model, and return the figures of all rounds."""
    import skate
    from skate import serve

    skate.init(log_to_driver=False)
    serve.start(http_options={"port": 0})
    serve.run(make_app(folder, kind, config), name="models", route_prefix="/")
    address = "http://{}:{}".format(*serve.address())
    time.sleep(PREPARATION if not options.tiny else 0.1)
    found: dict[str, Any] = {}
    for name, with_long in (("alone", False), ("beside_long_prompts", True)):
        rounds = [
            asyncio.run(run(address, config, options.outputs, options.long, with_long, f"{name} {number}"))
            for number in range(options.rounds + 1)
        ][1:]
        found[name] = {
            key: statistics.median(each[key] for each in rounds if key in each) for key in rounds[0]
        }
    serve.shutdown()
    skate.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--outputs", type=int, default=OUTPUTS, help="tokens of each stream")
    parser.add_argument("--long", type=int, default=LONG, help="tokens of a long prompt")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--tiny", action="store_true", help="a small model, to check the program")
    options = parser.parse_args()
    config = generate.CONFIG
    if options.tiny:
        generate.INPUTS, config = 8, generate.TINY
        options.outputs, options.long = min(options.outputs, 32), min(options.long, 64)
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    figures: dict[str, Any] = {"device": torch.cuda.get_device_name() if device == "cuda" else "CPU"}
    with tempfile.TemporaryDirectory(prefix="bench-llm-") as holder:
        folder = Path(holder)
        generate.write_model(folder, config, device)
        if device == "cuda":
            torch.cuda.empty_cache()
        for kind in ("one", "split"):
            figures[kind] = measure(folder, config, kind, options)
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
