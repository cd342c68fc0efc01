"""A language model under constant load of every kind: memory over time, and no failed request."""

from __future__ import annotations

import asyncio
import collections
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

pytest.importorskip("torch")

import skate
from skate import serve
from skate.serve.llm import LLMConfig, build_openai_app
from tests.llm.engine.models import write_adapter, write_model

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

SECONDS_OF_LOAD = float(os.environ.get("SKATE_CHAOS_LLM_SECONDS", "120"))
CLIENTS = 6
WARM_UP = 600  # requests, after which caches are full and every kind of request has been seen
MAX_GROWTH_MB = 10.0
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    write_model(tmp_path / "model")
    for number in range(3):
        write_adapter(tmp_path / "adapters" / f"adapter{number}", seed=number)
    config = LLMConfig(
        model_loading_config={"model_id": "small", "model_source": str(tmp_path / "model")},
        engine_kwargs={"max_num_seqs": 4, "num_threads": 1, "max_loras": 2},
        lora_config={"dynamic_lora_loading_path": str(tmp_path / "adapters")},
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 1}},
    )
    skate.init(num_cpus=4)
    serve.start(http_options={"port": 0})
    serve.run(build_openai_app({"llm_configs": [config]}))
    host, port = serve.address()
    yield f"http://{host}:{port}/v1/"
    serve.shutdown()
    skate.shutdown()


class Clients:
    """Sends random requests, and checks their answers."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._rng = random.Random(0)
        self.answers: collections.Counter[str] = collections.Counter()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send requests one after the other."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.answer,
            self.stream,
            self.leave,
            self.follow_schema,
            self.use_adapter,
            self.embed,
            self.ask_too_much,
        ]
        while not is_over():
            kind = self._rng.choice(kinds)
            await kind()
            self.answers[kind.__name__] += 1

    def _chat(self, **fields: Any) -> dict[str, Any]:
        words = " ".join(str(self._rng.randrange(10)) for _ in range(self._rng.randrange(1, 30)))
        messages = [{"role": "user", "content": words}]
        return {"model": "small", "messages": messages, "max_tokens": self._rng.randrange(1, 30), **fields}

    async def _post(self, path: str, body: dict[str, Any], status: int = 200) -> Any:
        response = await self._http.post(path, json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def answer(self) -> None:
        await self._post("chat/completions", self._chat(n=self._rng.randrange(1, 3), logprobs=True))

    async def stream(self) -> None:
        body = self._chat(stream=True)
        async with self._http.stream("POST", "chat/completions", json=body) as response:
            assert response.status_code == 200
            lines = [line async for line in response.aiter_lines() if line]
        assert lines[-1] == "data: [DONE]"

    async def leave(self) -> None:
        body = self._chat(stream=True, max_tokens=150, ignore_eos=True)
        async with self._http.stream("POST", "chat/completions", json=body) as response:
            async for _ in response.aiter_lines():
                break

    async def follow_schema(self) -> None:
        # Each schema is another one, so that compiled grammars cannot all be kept.
        schema = {**SCHEMA, "title": str(self._rng.randrange(10_000))}
        format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        await self._post("chat/completions", self._chat(response_format=format, max_tokens=60))

    async def use_adapter(self) -> None:
        model = f"small:adapter{self._rng.randrange(3)}"
        await self._post("completions", {"model": model, "prompt": "one", "max_tokens": 10})

    async def embed(self) -> None:
        await self._post("embeddings", {"model": "small", "input": ["one", "two"]})

    async def ask_too_much(self) -> None:
        await self._post("chat/completions", self._chat(max_tokens=10**6), status=400)


def megabytes() -> dict[str, float]:
    """Return the memory of each process of the session by its title, with its number."""
    processes = psutil.Process().children(recursive=True)
    return {f"{each.pid} {' '.join(each.cmdline())[:60]}": each.memory_info().rss / 1e6 for each in processes}


async def test_memory_does_not_grow_under_load_of_every_kind(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        clients = Clients(http)
        await asyncio.gather(
            *(clients.run(lambda: clients.answers.total() >= WARM_UP) for _ in range(CLIENTS))
        )
        before = megabytes()
        end = time.monotonic() + SECONDS_OF_LOAD
        await asyncio.gather(*(clients.run(lambda: time.monotonic() >= end) for _ in range(CLIENTS)))
        after = megabytes()
    growth = {name: round(after[name] - before[name], 1) for name in before if name in after}
    print(f"{clients.answers.total()} requests in {SECONDS_OF_LOAD:.0f} s: {dict(clients.answers)}")
    print(f"MB more than after the first {WARM_UP}: {growth}")
    assert after.keys() == before.keys(), "a process has ended"
    assert max(growth.values()) < MAX_GROWTH_MB, (before, after)
