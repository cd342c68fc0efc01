"""Load over HTTP from a compiled client, so that the client is not what is measured."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.request


def _client(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"this row needs {name}: apt-get install {name}")
    return found


def rate(url: str, connections: int, seconds: float, warmup: float = 1.0) -> float:
    """Return how many requests a second are answered; all of them have to succeed.

    Args:
        url: What to ask for.
        connections: How many clients ask, one request after the other.
        seconds: For how long.
        warmup: For how long before that, without counting.
    """
    wrk = [_client("wrk"), "-t1", f"-c{connections}", "--timeout", "10s"]
    subprocess.run([*wrk, f"-d{max(1, round(warmup))}s", url], check=True, capture_output=True)
    timed = [*wrk, f"-d{max(1, round(seconds))}s", url]
    done = subprocess.run(timed, check=True, capture_output=True, text=True)
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise SystemExit(f"not all requests succeeded:\n{done.stdout}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found
    return float(found[1])


def p99_at(url: str, requests_per_second: float, seconds: float, connections: int = 16) -> float:
    """Return the time within which 99 of 100 requests are answered when they come at this rate."""
    each = requests_per_second / connections
    done = subprocess.run(
        [_client("hey"), "-c", str(connections), "-q", f"{each:.3f}", "-z", f"{seconds:g}s", url],
        check=True,
        capture_output=True,
        text=True,
    )
    # Numbers in brackets stand in the histogram above, too.
    if re.search(r"\[[345]\d\d\]", done.stdout.partition("Status code distribution")[2]):
        raise SystemExit(f"not all requests succeeded:\n{done.stdout}")
    found = re.search(r"99%+ in ([\d.]+) secs", done.stdout)
    assert found, done.stdout
    return float(found[1])


def wait_for(url: str, timeout: float = 60.0) -> None:
    """Wait until somebody answers."""
    deadline = time.perf_counter() + timeout
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()
                return
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.005)


def stream_seconds(url: str, clients: int, chunks: int) -> float:
    """Return how long it takes until every client has read a stream to its end."""
    import asyncio
    from urllib.parse import urlsplit

    parts = urlsplit(url)

    async def read() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET {parts.path or '/'} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        body = await reader.read()
        writer.close()
        if body.count(b"x" * 20) < chunks:
            raise SystemExit("the stream ended early")

    async def go() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(read() for _ in range(clients)))
        return time.perf_counter() - start

    asyncio.run(go())  # the first one pays for what is made at first need
    return asyncio.run(go())
