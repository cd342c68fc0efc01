"""The page and its server with real faults: pages of other sites, nodes that die, clients that do not read."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import psutil
import pytest

import skate
from skate._api import nodes
from tests.browser import Page, open_browser
from tests.contract.support import eventually
from tests.dashboard.processes import Client, running
from tests.plugins.command_line import Cli

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

OTHER_SITE = "evil.example"
STALLED_BYTES = 96 << 20
MOST_GROWTH = 32 << 20


@pytest.fixture
def browser(cli: Cli) -> Iterator[str]:
    # The name of another site leads to this machine, as it does after DNS rebinding.
    with open_browser(f"--host-resolver-rules=MAP {OTHER_SITE} 127.0.0.1") as address:
        yield address


def page_of(client: Client) -> str:
    """Return the URL of the page with the token."""
    return f"{client.base}/?token={client.headers['Authorization'].removeprefix('Bearer ')}"


def wait_for_text(page: Page, text: str, selector: str) -> None:
    page.wait_for(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")


# ------------------------------------------------------------ other sites


def test_a_name_that_is_rebound_to_this_machine_shows_nothing(browser: str, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (client, _):
        page = Page(browser)
        page.open(page_of(client).replace("127.0.0.1", OTHER_SITE))
        assert "is not this dashboard" in page.text("body")
        # Nor is there a cookie that a script of that site could use.
        assert page.run("fetch('/state/session').then((answer) => answer.status)") == 403
        page.close()


class _Site(BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://{OTHER_SITE}:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@skate.remote(num_cpus=0)
class Victim:
    def is_there(self) -> bool:
        return True


def test_a_page_of_another_site_can_neither_read_nor_change(
    browser: str, node: nodes.NodeRecord, other_site: str
) -> None:
    with skate.init("auto"), running("--port", "0") as (client, _):
        victim = Victim.options(name="victim").remote()
        assert skate.get(victim.is_there.remote())
        page = Page(browser)
        page.open(page_of(client))  # the browser has the cookie now
        wait_for_text(page, "Live", "header")
        page.open(other_site)
        for mode in ("cors", "no-cors"):
            for method, path in (("GET", "/state/actors"), ("POST", "/actions/actors/victim/kill")):
                options = json.dumps({"method": method, "mode": mode, "credentials": "include"})
                seen = page.run(
                    f"fetch({json.dumps(client.base + path)}, {options}).then((a) => a.text(), () => 'blocked')"
                )
                assert seen in ("", "blocked")
        assert skate.get(victim.is_there.remote())
        page.close()


def test_one_browser_shows_two_dashboards(browser: str, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (first, _), running("--port", "0") as (second, _):
        pages = [Page(browser), Page(browser)]
        for page, client in zip(pages, (first, second), strict=True):
            page.open(page_of(client))
        for page, client in zip(pages, (first, second), strict=True):
            page.open(f"{client.base}/actors")  # with the cookies of both
            wait_for_text(page, "Live", "header")
            page.close()


# ------------------------------------------------------------ nodes that die


def test_the_page_says_that_the_node_was_killed_and_shows_the_next_one(
    browser: str, node: nodes.NodeRecord
) -> None:
    with running("--port", "0") as (client, _):
        page = Page(browser)
        page.open(page_of(client))
        wait_for_text(page, f"PID {node.pid}", "header")
        wait_for_text(page, "Live", "header")
        assert node.pid is not None
        psutil.Process(node.pid).kill()
        wait_for_text(page, "Node ended", "header")
        wait_for_text(page, "goes on when a node is running again", "[role=alert]")
        nodes.stop(force=True)
        again = nodes.start(num_cpus=1)
        wait_for_text(page, f"PID {again.pid}", "header")
        wait_for_text(page, "Live", "header")
        page.wait_for("!document.querySelector('[role=alert]')")
        wait_for_text(page, "of 1", "main")  # the CPUs of the new node
        page.close()


# ------------------------------------------------------------ clients that do not read


def test_clients_that_stop_reading_cost_little_memory(cli: Cli, node: nodes.NodeRecord) -> None:
    log = Path(node.folder) / "logs" / "large.log"
    log.touch()
    with running("--port", "0") as (client, process):
        server = psutil.Process(process.pid)
        host, port = client.base.removeprefix("http://").split(":")
        authorization = f"Authorization: {client.headers['Authorization']}"
        stalled = [socket.create_connection((host, int(port))) for _ in range(4)]
        for each in stalled:
            each.sendall(
                f"GET /state/logs/large.log/follow HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n\r\n".encode()
            )
            assert each.recv(12) == b"HTTP/1.1 200"  # it follows, and reads nothing after this
        with httpx.stream(
            "GET", f"{client.base}/state/logs/large.log/follow", headers=client.headers, timeout=60.0
        ) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: lines"
            before = server.memory_info().rss
            with log.open("w") as file:
                for _ in range(STALLED_BYTES >> 20):
                    file.write(("x" * 1023 + "\n") * 1024)
                file.write("the end\n")
            # The client that reads has all of it, so the server has had the time to send it to the others too.
            assert any("the end" in line for line in lines)
        assert server.memory_info().rss - before < MOST_GROWTH
        for each in stalled:
            each.close()
        eventually(lambda: len(server.net_connections()) <= 2, "the connections are closed")
