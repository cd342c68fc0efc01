"""Load over HTTP from a compiled client, so that the client is not what is measured."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

# The stream that every system sends, and how many read it at a time.
CHUNKS = 1000
CLIENTS = 16


def _client(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"this row needs {name}: apt-get install {name}")
    return found


def rate(url: str, connections: int, seconds: float, warmup: float = 1.0, body: str | None = None) -> float:
    """Return how many requests a second are answered; all of them have to succeed.

    Args:
        url: What to ask for.
        connections: How many clients ask, one request after the other.
        seconds: For how long.
        warmup: For how long before that, without counting.
        body: JSON to POST; without it the clients GET.
    """
    wrk = [_client("wrk"), "-t1", f"-c{connections}", "--timeout", "10s"]
    what = [url] if body is None else ["-s", str(Path(__file__).with_name("post.lua")), url, "--", body]
    subprocess.run([*wrk, f"-d{max(1, round(warmup))}s", *what], check=True, capture_output=True)
    timed = [*wrk, f"-d{max(1, round(seconds))}s", *what]
    done = subprocess.run(timed, check=True, capture_output=True, text=True)
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        # The harness quotes the last line.
        raise SystemExit(f"{done.stdout}\nnot all requests succeeded")
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found
    return float(found[1])


def p99_at(
    url: str, requests_per_second: float, seconds: float, connections: int = 16, body: str | None = None
) -> float:
    """Return the time within which 99 of 100 requests are answered when they come at this rate."""
    each = requests_per_second / connections
    hey = [_client("hey"), "-c", str(connections), "-q", f"{each:.3f}", "-z", f"{seconds:g}s"]
    post = [] if body is None else ["-m", "POST", "-T", "application/json", "-d", body]
    done = subprocess.run([*hey, *post, url], check=True, capture_output=True, text=True)
    return read_p99(done.stdout, requests_per_second)


def read_p99(report: str, requests_per_second: float) -> float:
    """Return the seconds that hey reports for 99 of 100 requests; all of them have to succeed, at this rate."""
    # Numbers in brackets stand in the histogram, too, and before the errors that are not of HTTP.
    statuses, _, errors = report.partition("Status code distribution")[2].partition("Error distribution")
    if errors or re.search(r"\[[345]\d\d\]", statuses):
        raise SystemExit(f"{report}\nnot all requests succeeded")
    # A client waits for its answer before it asks again: a server that stalls is asked less, and would look better.
    reached = re.search(r"Requests/sec:\s+([\d.]+)", report)
    assert reached, report
    if float(reached[1]) < 0.9 * requests_per_second:
        raise SystemExit(
            f"{report}\n{reached[1]} requests a second came through instead of {requests_per_second:.1f}"
        )
    found = re.search(r"99%+ in ([\d.]+) secs", report)
    assert found, report
    return float(found[1])


def wait_for(url: str, body: str | None = None, timeout: float = 60.0) -> None:
    """Wait until the server answers."""
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, headers={"Content-Type": "application/json"} if data else {})
    deadline = time.perf_counter() + timeout
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                answer.read()
                return
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.005)


def stream_seconds(url: str, body: str | None = None) -> float:
    """Return how long it takes until every client has read a stream to its end."""
    import asyncio
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    head = f"{'GET' if body is None else 'POST'} {parts.path or '/'} HTTP/1.1\r\nhost: localhost\r\n"
    head += "connection: close\r\n"
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(body.encode())}\r\n"
    request = f"{head}\r\n{body or ''}".encode()

    async def read() -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer.count(b"x" * 20)

    async def go() -> tuple[float, list[int]]:
        start = time.perf_counter()
        found = await asyncio.gather(*(read() for _ in range(CLIENTS)))
        return time.perf_counter() - start, found

    asyncio.run(go())  # the first one pays for what is made at first need
    seconds, found = asyncio.run(go())
    if min(found) < CHUNKS:
        raise SystemExit(f"a stream ended after {min(found)} of {CHUNKS} parts")
    return seconds
