"""Nothing that a client sends hurts others."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai

from tests.llm.serve.bad_requests import BAD

STREAMS = 8
TIMES = 3


async def test_good_streams_finish_beside_hundreds_of_bad_requests(url: str) -> None:
    text = "abcdefghij" * 12
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=100) as client,
        httpx.AsyncClient(base_url=url, timeout=100) as http,
    ):
        begun = [asyncio.Event() for _ in range(STREAMS)]

        async def read(number: int) -> str:
            received = ""
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": f"gate {number} {text}"}],
                stream=True,
            )
            async for chunk in stream:
                received += chunk.choices[0].delta.content or ""
                begun[number].set()
            return received

        streams = [asyncio.create_task(read(number)) for number in range(STREAMS)]
        await asyncio.gather(*(each.wait() for each in begun))

        limit = asyncio.Semaphore(16)

        async def post(path: str, body: Any) -> httpx.Response:
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            async with limit:  # more would only wait in the proxy
                return await http.post(path, **content)

        answers = await asyncio.gather(*(post(path, body) for path, body, _ in BAD * TIMES))
        for (path, body, message), answer in zip(BAD * TIMES, answers, strict=True):
            shown = f"{path} {str(body)[:300]}: {answer.status_code} {answer.text[:600]}"
            assert 400 <= answer.status_code < 500, shown
            error = answer.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}, shown
            assert message in error["message"], shown
            assert len(error["message"]) < 2000, shown
        assert not any(stream.done() for stream in streams)
        for number in range(STREAMS):
            await client.completions.create(model="tiny", prompt=f"open {number}")
        assert await asyncio.gather(*streams) == [text] * STREAMS
        assert (await http.get("/health")).status_code == 200


def test_there_are_many_bad_requests() -> None:
    assert len(BAD) * TIMES >= 450
