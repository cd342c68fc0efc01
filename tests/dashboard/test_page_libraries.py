"""Every page in a real browser while jobs of every library run: wide and narrow, light and dark, checked with axe."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.job_submission import JobSubmissionClient
from skate.util.placement_group import placement_group, remove_placement_group
from tests.browser import Page, open_browser
from tests.conftest import LeakWatch
from tests.dashboard.accessibility import AXE, problems

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("openai")
data = pytest.importorskip("skate.data", exc_type=ImportError)
serve = pytest.importorskip("skate.serve", exc_type=ImportError)
train = pytest.importorskip("skate.train", exc_type=ImportError)
tune = pytest.importorskip("skate.tune", exc_type=ImportError)

# A text of each page that shows something that runs now.
PAGES = {
    "/": "too-large",
    "/tasks": "hold",
    "/actors": "Gate",
    "/objects": "driver",
    "/placement_groups": "too-large",
    "/workers": "alive",
    "/logs": "the job is running",
    "/jobs": "sleep 3600",
    "/data": "running",
    "/train": "running",
    "/tune": "running",
    "/serve": "Greeter",
    "/models": "tiny",
}


@skate.remote(num_cpus=0)
class Gate:
    """Holds jobs until the end of the module."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def wait(self) -> None:
        await self.opened.wait()


def wait_for_gate() -> None:
    skate.get(skate.get_actor("gate").wait.remote())


@skate.remote(num_cpus=0)
def hold() -> None:
    wait_for_gate()


def hold_row(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 3:
        wait_for_gate()
    return row


def train_loop() -> None:
    for step in range(1, 20):
        train.report({"loss": 1 / step, "lr": 1e-3 / step})
    wait_for_gate()


def objective(config: dict[str, Any]) -> None:
    tune.report({"loss": config["lr"]})
    wait_for_gate()


def start_jobs(jobs: ThreadPoolExecutor, folder: Path) -> None:
    """Start a dataset, a training run and an experiment, none of which ends before the gate opens."""
    from skate.train.data_parallel_trainer import DataParallelTrainer

    dataset = data.range(4, override_num_blocks=4).map(hold_row)
    trainer = DataParallelTrainer(
        train_loop,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(storage_path=str(folder / "train"), name="small-model"),
    )
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 0.1}),
        param_space={"lr": tune.grid_search([0.1, 0.2]), "optimizer": tune.choice(["adam", "sgd"])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    )
    jobs.submit(dataset.materialize)
    jobs.submit(trainer.fit)
    jobs.submit(tuner.fit)


def serve_applications() -> None:
    """Serve an application and a language model, and send a request to each."""
    from skate.serve.llm import build_openai_app
    from tests.llm.serve.conftest import config

    @serve.deployment(ray_actor_options={"num_cpus": 0.1})
    class Greeter:
        def __call__(self, _: Any) -> str:
            return "hello"

    serve.start(http_options={"port": 0})
    serve.run(Greeter.bind(), name="greeting", route_prefix="/greet")
    serve.run(build_openai_app({"llm_configs": [config()]}), name="models", route_prefix="/llm")
    base = "http://{}:{}".format(*serve.address())
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "say hello"}]}
    header = {"Content-Type": "application/json"}
    for request in (
        urllib.request.Request(f"{base}/greet"),
        urllib.request.Request(f"{base}/llm/v1/chat/completions", json.dumps(chat).encode(), header),
    ):
        urllib.request.urlopen(request).close()


@pytest.fixture(scope="module")
def url(leak_watch: LeakWatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a session with a dashboard, in which jobs of every library run."""
    with leak_watch.shared_session(num_cpus=4, include_dashboard=True, dashboard_port=0, log_to_driver=False):
        gate = Gate.options(name="gate").remote()
        client = JobSubmissionClient()
        client.submit_job(entrypoint="echo the job is running; sleep 3600", submission_id="long-job")
        held = hold.remote()
        group = placement_group([{"CPU": 4}] * 2, name="too-large")
        kept = skate.put(bytes(2_000_000))
        with ThreadPoolExecutor(3) as jobs:
            start_jobs(jobs, tmp_path_factory.mktemp("runs"))
            serve_applications()
            yield skate.get_runtime_context().dashboard_url
            skate.get(gate.open.remote())
        skate.get(held)
        client.stop_job("long-job")
        remove_placement_group(group)
        serve.shutdown()
        del kept


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[str]:
    with open_browser() as address:
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_shows_the_jobs_that_run(browser: str, url: str, width: int, dark: bool) -> None:
    page = Page(browser, width=width, dark=dark)
    page.open(url)
    found = []
    for path, text in PAGES.items():
        page.activate(f"nav.nav a[href={json.dumps(path)}]")
        if path == "/logs":
            page.activate("main a[href*=job-driver-long-job]")
        page.wait_for(f"document.querySelector('main')?.innerText.includes({json.dumps(text)})")
        assert page.run("document.documentElement.scrollWidth") <= width, path
        if AXE.exists():
            found += problems(page)
    assert found == []
    scheme = page.run("document.documentElement.dataset.mantineColorScheme")
    assert scheme == ("dark" if dark else "light")
    assert page.errors == []
    page.close()
