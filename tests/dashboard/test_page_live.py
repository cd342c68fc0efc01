"""The page in a real browser, with the dashboard of a session in which tasks, actors and datasets run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

import skate
from skate.util.placement_group import placement_group, remove_placement_group
from tests.browser import Page, open_browser
from tests.conftest import LeakWatch

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
data = pytest.importorskip("skate.data", exc_type=ImportError)

# A text of each page that shows something of this session, or what to do to see something.
PAGES = {
    "/": "second-group",
    "/tasks": "blocked",
    "/actors": "Counter",
    "/objects": "driver",
    "/placement_groups": "second-group",
    "/workers": "alive",
    "/logs": "hello from a task",
    "/jobs": "running",
    "/data": "Map(think)",
    "/train": "No training has run in this session",
    "/tune": "No experiment has run in this session",
    "/serve": "No application is deployed",
    "/models": "No language model is served",
}


ODD_NAME = "v1.5/a b 50%"


@skate.remote
def greet() -> bytes:
    print("hello from a task")
    return bytes(1_000_000)


def think(row: dict[str, int]) -> dict[str, int]:
    time.sleep(0.3)  # runs that take no time are not recorded
    return row


@skate.remote(num_cpus=1)
def blocked(_: object) -> None: ...


@skate.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.released = asyncio.Event()

    def add(self) -> int:
        return 1

    async def wait(self) -> None:
        await self.released.wait()

    async def release(self) -> None:
        self.released.set()


@pytest.fixture(scope="module")
def url(leak_watch: LeakWatch) -> Iterator[str]:
    """Start a session with a dashboard, in which a task and a placement group wait."""
    with leak_watch.shared_session(num_cpus=2, include_dashboard=True, dashboard_port=0, log_to_driver=False):
        counter = Counter.options(name="counter").remote()
        odd = Counter.options(name=ODD_NAME).remote()
        skate.get(odd.add.remote())
        kept = skate.get([counter.add.remote(), greet.remote()]), greet.remote(), skate.put(bytes(2_000_000))
        data.range(4, override_num_blocks=4).map(think).materialize()
        waits = blocked.remote(counter.wait.remote())
        groups = [placement_group([{"CPU": 2}], name=name) for name in ("first-group", "second-group")]
        yield skate.get_runtime_context().dashboard_url
        for group in groups:
            remove_placement_group(group)
        skate.get([counter.release.remote(), waits])
        del kept


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[str]:
    with open_browser() as address:
        yield address


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_page_shows_what_runs(browser: str, url: str, width: int, dark: bool) -> None:
    page = Page(browser, width=width, dark=dark)
    page.open(url)
    for path, text in PAGES.items():
        page.activate(f"nav.nav a[href={json.dumps(path)}]")
        page.wait_for(f"document.querySelector('main').innerText.includes({json.dumps(text)})")
        assert page.run("document.documentElement.scrollWidth") <= width, path
    assert "token" not in page.run("location.href")
    assert page.errors == []
    page.close()


def test_a_task_that_waits_says_why(browser: str, url: str) -> None:
    page = Page(browser)
    page.open(url)
    page.activate("nav.nav a[href='/tasks']")
    page.activate("main button.why")
    page.wait_for("document.querySelector('[role=dialog] ul')?.innerText.includes('has not returned it yet')")
    page.close()


def test_an_address_with_any_name_opens_the_actor(browser: str, url: str) -> None:
    page = Page(browser)
    page.open(url)
    page.wait_for("document.querySelector('nav.nav')")
    page.open(f"{url.partition('/?')[0]}/actors/{quote(ODD_NAME, safe='')}")
    page.wait_for("document.querySelector('[role=dialog] dl')?.innerText.includes('Counter')")
    assert ODD_NAME in page.text("[role=dialog]")
    assert page.errors == []
    page.close()


def test_without_the_token_the_page_is_not_shown(browser: str, url: str) -> None:
    address = urlsplit(url)
    page = Page(browser)
    page.open(f"{address.scheme}://localhost:{address.port}/")  # the cookie is of 127.0.0.1
    assert "needs a token" in page.text("body")
    page.close()
