"""The page in a real browser, with made-up data: every page, and states that are rare in a real session."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page, open_browser
from tests.conftest import LeakWatch
from tests.contract.support import eventually
from tests.dashboard import fake_data
from tests.dashboard.accessibility import AXE, problems

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

ROOT = Path(__file__).parents[2]

# The link to each page, and a text that shows its data.
PAGES = {
    "/": ("Overview", "18,432"),
    "/tasks": ("Tasks", "load_shard"),
    "/actors": ("Actors", "ReplayBuffer"),
    "/objects": ("Objects", "pipeline.py:31"),
    "/placement_groups": ("Placement groups", "two-gpus"),
    "/workers": ("Workers", "41303"),
    "/logs": ("Logs", "INFO worker-1.out shard 79"),
    "/jobs": ("Jobs", "python nightly.py --part 2"),
    "/data": ("Data runs", "waits for MapBatches(Embedder)"),
    "/train": ("Train runs", "loss 1.7"),
    "/tune": ("Tune experiments", "optimizer"),
    "/serve": ("Serve", "no password"),
    "/models": ("Language models", "smollm2-135m-instruct:support"),
}


@pytest.fixture(scope="module")
def browser(leak_watch: LeakWatch) -> Iterator[str]:
    # The browser starts processes as it likes; with a shared session, leaks are looked for at the end of the module.
    with leak_watch.shared_session(engine="inline"), open_browser() as address:
        yield address


@pytest.fixture(scope="module")
def server(browser: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dashboard.fake_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def url(server: str) -> Iterator[str]:
    yield server
    set_scene(server, "busy")


@pytest.fixture
def page(browser: str, url: str) -> Iterator[Page]:
    made = Page(browser, width=1280)
    yield made
    assert made.dialogs == []
    assert made.errors == []
    made.close()


def set_scene(url: str, name: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/fake/scene/{name}", method="POST")).close()


def actions(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/fake/actions") as answer:
        return json.load(answer)


def wait_for_text(page: Page, text: str, selector: str = "body") -> None:
    page.wait_for(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")


def go_to(page: Page, path: str) -> None:
    """Click the link to a page, and wait for its data."""
    name, text = PAGES[path]
    page.activate(f"nav.nav a[href={json.dumps(path)}]")
    page.wait_for(f"document.querySelector('h1')?.innerText === {json.dumps(name)}")
    wait_for_text(page, text, "main")


def click_button(page: Page, name: str, within: str = "body") -> None:
    """Click the first button or link with this text or label."""
    found = f"""[...document.querySelectorAll({json.dumps(f"{within} button, {within} a")})].find((each) =>
        each.innerText.trim() === {json.dumps(name)} || each.ariaLabel === {json.dumps(name)})"""
    page.wait_for(found)
    page.run(f"{found}.click()")


def test_every_page_shows_its_data(page: Page, url: str) -> None:
    page.open(url)
    for path, (name, _) in PAGES.items():
        go_to(page, path)
        assert page.run("document.title") == f"{name} · Skate"
        assert page.text("nav.nav [aria-current=page]").strip() == name
        assert page.run("document.documentElement.scrollWidth") <= 1280


@pytest.mark.skipif(not AXE.exists(), reason="needs axe: npm ci in dashboard/")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_no_page_has_a_serious_accessibility_problem(browser: str, url: str, width: int, dark: bool) -> None:
    page = Page(browser, width=width, dark=dark)
    page.open(url)
    found = []
    for path in PAGES:
        go_to(page, path)
        found += problems(page)
    assert found == []
    page.close()


def test_every_page_fits_a_phone_in_dark_mode(browser: str, url: str) -> None:
    page = Page(browser, width=390, dark=True)
    page.open(url)
    page.wait_for("document.querySelector('nav.nav')")
    assert not page.run("document.querySelector('nav.nav').checkVisibility({visibilityProperty: true})")
    click_button(page, "Navigation")
    page.wait_for("document.querySelector('nav.nav').checkVisibility({visibilityProperty: true})")
    for path in PAGES:
        go_to(page, path)
        assert page.run("document.documentElement.scrollWidth") <= 390, path
    assert not page.run("document.querySelector('nav.nav').checkVisibility({visibilityProperty: true})")
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(17, 19, 24)"
    assert page.errors == []
    page.close()


def test_the_colours_can_be_switched_and_are_remembered(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "Live")
    for wanted in ("light", "dark"):
        page.activate("header [aria-label^=Colours]")
        page.wait_for(f"document.documentElement.dataset.mantineColorScheme === '{wanted}'")
    page.open(url)
    page.wait_for("document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.run("localStorage.clear()")


def test_why_something_waits_is_one_click_away(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "train_step", "main")
    page.run("document.querySelector('[aria-label=\"Why is train_step waiting?\"]').focus()")
    page.press("Enter", text="\r")
    wait_for_text(page, "The GPU is held by train_step (PID 41302)", "[role=dialog]")
    page.press("Escape")
    page.wait_for("!document.querySelector('[role=dialog]')")
    assert page.run("document.activeElement.ariaLabel") == "Why is train_step waiting?"


@pytest.mark.parametrize("path", ["/tasks", "/actors", "/objects", "/placement_groups", "/serve", "/jobs"])
def test_every_row_that_waits_says_why(page: Page, url: str, path: str) -> None:
    page.open(url + path)
    wait_for_text(page, PAGES[path][1], "main")
    page.activate("main button.why")
    wait_for_text(page, "it never starts as it is", "[role=dialog]")


def test_a_task_is_searched_filtered_opened_and_cancelled(page: Page, url: str) -> None:
    page.open(f"{url}/tasks")
    wait_for_text(page, "33", "[aria-label='All tasks']")
    click_button(page, "Waiting")
    wait_for_text(page, "6 found", "[aria-label='All tasks']")
    page.press("/")
    page.wait_for("document.activeElement.matches('[data-search]')")
    page._call("Input.insertText", text="train_step")
    wait_for_text(page, "1 found", "[aria-label='All tasks']")
    page.press("Escape")
    wait_for_text(page, "6 found", "[aria-label='All tasks']")
    page.activate("[aria-label='All tasks'] tbody tr")
    wait_for_text(page, "CPU", "[role=dialog]")
    task = fake_data.make_id("task", 3)
    assert page.run("location.pathname") == f"/tasks/{task}"
    click_button(page, "Cancel", "[role=dialog]")
    wait_for_text(page, "Cancel this task?", "[role=dialog]")
    assert actions(url) == []
    click_button(page, "Cancel", "[role=dialog]")
    page.wait_for("!document.querySelector('[role=dialog]').innerText.includes('Cancel this task?')")
    eventually(lambda: actions(url) == [{"path": f"/actions/tasks/{task}/cancel"}], "the task is cancelled")
    page.press("Escape")
    page.wait_for("!document.querySelector('[role=dialog]')")
    assert page.run("location.pathname") == "/tasks"


def test_the_counts_lead_to_the_tasks_that_they_count(page: Page, url: str) -> None:
    page.open(url)
    page.activate("main [aria-label='Tasks failed: 3']")
    wait_for_text(page, "3 found", "[aria-label='All tasks']")
    assert page.text("[aria-label=Filter] [aria-pressed=true]") == "Failed"


def test_the_overview_shows_the_runs_and_why_one_failed(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "loss is <i>nan</i> at iteration 14", "[aria-label=Runs]")
    click_button(page, "TorchTrainer_first", "[aria-label=Runs]")
    page.wait_for("location.pathname === '/train/train-1'")


def test_a_job_is_stopped_and_its_log_is_one_click_away(page: Page, url: str) -> None:
    done = len(actions(url))
    running, failed = (f"raysubmit_{fake_data.make_id(status)[:16]}" for status in ("RUNNING", "FAILED"))
    page.open(f"{url}/jobs/{running}")
    click_button(page, "Stop", "[role=dialog]")
    wait_for_text(page, "Stop this job?", "[role=dialog]")
    click_button(page, "Stop", "[role=dialog]")
    eventually(lambda: actions(url)[done:] == [{"path": f"/api/jobs/{running}/stop"}], "the job is stopped")
    page.open(f"{url}/jobs/{failed}")
    wait_for_text(page, "Job finished with exit code 1.", "[role=dialog]")
    click_button(page, "Log", "[role=dialog]")
    wait_for_text(page, f"INFO job-driver-{failed}.log shard 79", ".log-lines")


def test_the_log_that_is_read_stays_when_others_are_written(page: Page, url: str) -> None:
    names = "[...document.querySelectorAll('.log-files a span[title]')].map((each) => each.title)"
    page.open(f"{url}/logs")
    wait_for_text(page, "INFO worker-1.out shard 79", ".log-lines")
    before = page.run(names)
    set_scene(url, "written")
    wait_for_text(page, "999 B", ".log-files")
    assert page.run(names) == ["worker-9.out", *before]
    wait_for_text(page, "INFO worker-1.out shard 79", ".log-lines")
    assert page.text("[aria-current=true] span").startswith("worker-1.out")


def test_an_error_of_a_task_is_shown_as_text(page: Page, url: str) -> None:
    page.open(f"{url}/tasks/{fake_data.make_id('task', 2)}")
    wait_for_text(page, 'the column "price" has <b>no</b> numbers', "[role=dialog]")


def test_what_does_not_exist_is_said(page: Page, url: str) -> None:
    page.open(f"{url}/actors/abc")
    wait_for_text(page, "There is nothing with the ID abc.", "[role=dialog]")
    page.open(f"{url}/nowhere")
    wait_for_text(page, "There is no page at /nowhere.")


def span(page: Page) -> list[float]:
    """Return the range of time that the timeline shows."""
    found = page.run(
        "['from', 'to'].map((each) => Number(document.querySelector('.timeline').dataset[each]))"
    )
    assert isinstance(found, list)
    return found


def test_the_timeline_zooms_pans_and_opens_tasks(page: Page, url: str) -> None:
    page.open(f"{url}/tasks")
    page.wait_for("document.querySelector('.timeline')?.dataset.to")
    assert page.run("document.querySelector('[aria-label=Timeline] [type=checkbox]').checked")
    first = span(page)
    click_button(page, "Show all")  # which ends following
    page.wait_for("!document.querySelector('[aria-label=Timeline] [type=checkbox]').checked")
    page.wait_for(f"Number(document.querySelector('.timeline').dataset.from) < {first[0]}")
    whole = span(page)
    page.wheel(".timeline", -300)
    page.wait_for(f"Number(document.querySelector('.timeline').dataset.from) > {whole[0]}")
    zoomed = span(page)
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.drag(".timeline", 0.6, 0.4)
    page.wait_for(f"Number(document.querySelector('.timeline').dataset.from) > {zoomed[0]}")
    dragged = span(page)
    assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0])
    page.run("document.querySelector('.timeline').focus()")
    for key, holds in [
        ("w", "to < before"),
        ("s", "to > before"),
        ("a", "to < before"),
        ("d", "to > before"),
    ]:
        before = span(page)[1]
        page.press(key)
        page.wait_for(
            f"((to, before) => {holds})(Number(document.querySelector('.timeline').dataset.to), {before})"
        )
    page.press("ArrowRight", shift=True)
    wait_for_text(page, "on worker 41300")  # said to those who do not see it
    page.press("Enter", text="\r")
    page.wait_for("document.querySelector('[role=dialog]') && location.pathname.startsWith('/tasks/')")


def test_a_click_into_the_timeline_opens_the_task(page: Page, url: str) -> None:
    page.open(f"{url}/tasks")
    page.wait_for("document.querySelector('.timeline')?.dataset.to")
    page.click(".timeline canvas", x=0.995, y=0.25)  # at the end a task is running
    page.wait_for("document.querySelector('[role=dialog]') && location.pathname.startsWith('/tasks/')")


def test_the_timeline_holds_twenty_thousand_events(page: Page, url: str) -> None:
    set_scene(url, "many")
    page.open(f"{url}/tasks")
    wait_for_text(page, "20,0", "[aria-label=Timeline]")
    click_button(page, "Show all")
    page.wheel(".timeline", -120)
    page.wait_for("document.querySelector('.timeline').dataset.to")


def test_the_page_says_how_many_events_are_no_longer_kept(page: Page, url: str) -> None:
    set_scene(url, "many")
    page.open(f"{url}/tasks")
    wait_for_text(page, "1M older ones are no longer kept", "[aria-label=Timeline]")
    wait_for_text(page, "1M older tasks are no longer kept.", "[aria-label='All tasks']")


def test_a_log_is_followed_and_searched(page: Page, url: str) -> None:
    page.open(f"{url}/logs")
    wait_for_text(page, "a new line", ".log-lines")
    page.press("/")
    page._call("Input.insertText", text="SCRIPT")
    wait_for_text(page, "1 matching line", "main")
    assert page.text(".log-lines") == "ValueError: <script>alert(1)</script> is no number"
    assert page.text(".log-lines mark") == "script"
    click_button(page, "node.log\n188 KiB · node", ".log-files")
    page.wait_for("location.search === '?file=node.log'")


def test_the_loss_of_a_failed_run_is_one_click_away(page: Page, url: str) -> None:
    page.open(f"{url}/train")
    wait_for_text(page, "240", "main")
    click_button(page, "TorchTrainer_first")
    wait_for_text(page, "loss is <i>nan</i> at iteration 14", "main")
    assert page.run("location.pathname") == "/train/train-1"


def test_a_trial_opens(page: Page, url: str) -> None:
    page.open(f"{url}/tune")
    wait_for_text(page, "0.3305", "main")
    click_button(page, "Details")
    wait_for_text(page, "batch_size", "[role=dialog]")


def test_the_answer_of_a_model_streams(page: Page, url: str) -> None:
    page.open(f"{url}/models")
    wait_for_text(page, "Try a model")
    page.type("textarea", "hello <i>you</i>")
    wait_for_text(page, "You said: hello <i>you</i> <b>bold</b>", ".chat-messages")
    wait_for_text(page, "first token after", ".chat-messages")
    page.type("textarea", "refuse this")
    wait_for_text(page, "the model takes 2,048", ".chat-messages")
    page.errors.clear()  # the browser reports the refusal


def test_a_lost_connection_is_said_and_recovers(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "Live")
    page.set_offline(True)
    set_scene(url, "cut")  # ends the stream, and one that the page is opening
    wait_for_text(page, "The connection to the dashboard's server is lost.", "[role=alert]")
    wait_for_text(page, "18,432", "main")
    set_scene(url, "busy")
    page.set_offline(False)
    wait_for_text(page, "Live", "header")
    page.wait_for("!document.querySelector('[role=alert]')")
    page.errors.clear()  # requests that failed


def test_the_end_of_the_node_is_said_and_recovers(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "Live")
    set_scene(url, "ended")
    wait_for_text(page, "The node (PID 41207) has ended.", "[role=alert]")
    wait_for_text(page, "Node ended", "header")
    set_scene(url, "busy")
    wait_for_text(page, "Live", "header")


def test_another_node_replaces_what_the_last_one_did(page: Page, url: str) -> None:
    page.open(f"{url}/tasks")
    wait_for_text(page, "load_shard", "main")
    set_scene(url, "ended")
    wait_for_text(page, "The node (PID 41207) has ended.", "[role=alert]")
    wait_for_text(page, "load_shard", "main")
    set_scene(url, "restarted")
    wait_for_text(page, "No task has run yet", "[aria-label=Timeline]")
    wait_for_text(page, "No task has been submitted yet", "main")


def test_a_token_that_is_not_valid_any_more_is_said(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "Live")
    set_scene(url, "unauthorized")
    wait_for_text(page, "This page's token is not valid any more.", "[role=alert]")
    set_scene(url, "busy")
    wait_for_text(page, "Live", "header")
    page.errors.clear()  # requests that were refused


def test_an_empty_session_says_what_to_do(page: Page, url: str) -> None:
    set_scene(url, "empty")
    page.open(url)
    wait_for_text(page, "Nothing waits")
    for path, (name, _) in PAGES.items():
        page.activate(f"nav.nav a[href={json.dumps(path)}]")
        page.wait_for(f"document.querySelector('h1')?.innerText === {json.dumps(name)}")
        if path != "/":
            page.wait_for("document.querySelector('main .empty pre')?.innerText")


def test_pages_are_reached_by_keyboard(page: Page, url: str) -> None:
    page.open(url)
    wait_for_text(page, "Live")
    page.press("g")
    page.press("a")
    page.wait_for("location.pathname === '/actors'")
    page.press("?", shift=True)
    wait_for_text(page, "search on this page", "[role=dialog]")
