"""What a trainer adds to the steps, and to the start, of the same loop under `torchrun`.

Two processes of one kind differ by more than a few per cent from one start to the next, so both groups of workers live
at the same time and take turns, a quarter of a second each: while one trains, the other waits.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import meter
import torch  # noqa: F401  # as a program that trains does, before it calls fit()

import skate
from skate import train
from skate.train.torch import TorchTrainer

LOOP = Path(__file__).with_name("ddp_loop.py")
TURN_SECONDS = 0.25

job = meter.Job()


def learn(config: dict[str, Any]) -> None:
    import ddp_loop

    ddp_loop.take_turns("skate", config["address"], train.report)


def fit(address: str, folder: str) -> None:
    TorchTrainer(
        learn,
        train_loop_config={"address": address},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=folder, name="bench"),
    ).fit()


@contextmanager
def torchrun(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen([*command, str(LOOP), address])
    try:
        yield
        if process.wait():
            raise RuntimeError(f"torchrun ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()


def train_steps() -> float:
    """Return the time of a step under Skate in per cent of its time under torchrun."""
    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/socket") as listener:
        found: list[float] = []
        judge = threading.Thread(target=lambda: found.append(compared(listener)))
        judge.start()
        with torchrun(listener.address):
            fit(listener.address, folder)
        judge.join()
        return found[0]


def compared(listener: Listener) -> float:
    links = {link.recv(): link for link in (listener.accept(), listener.accept())}
    count = max(1, round(200 * TURN_SECONDS / timed(links["torchrun"], 200)))
    taken: dict[str, list[float]] = {name: [] for name in links}
    deadline = time.perf_counter() + job.warmup
    warm = False
    for names in itertools.cycle([list(links), list(links)[::-1]]):
        for name in names:
            taken[name].append(timed(links[name], count))
        if time.perf_counter() > deadline:
            if warm:
                break
            warm, deadline = True, time.perf_counter() + 6 * job.seconds
            for times in taken.values():
                times.clear()
    for link in links.values():
        link.send(0)
    rates = {name: count / statistics.median(times) for name, times in taken.items()}
    print(", ".join(f"{name} {rate:.0f} steps/s" for name, rate in rates.items()), file=sys.stderr)
    # Of neighbours, so that a slow moment of the machine is in both.
    ratios = [ours / theirs for ours, theirs in zip(taken["skate"], taken["torchrun"], strict=True)]
    return 100 * statistics.median(ratios)


def timed(link: Connection, count: int) -> float:
    link.send(count)
    seconds: float = link.recv()
    return seconds


def train_first_step() -> float:
    """Return the time from `fit()` to the first step in per cent of the time that torchrun takes from its start."""
    with tempfile.TemporaryDirectory() as folder:
        with Listener(f"{folder}/torchrun") as listener:
            begun = time.perf_counter()
            with torchrun(listener.address):
                theirs = first_step(listener) - begun
        with Listener(f"{folder}/skate") as listener:
            found: list[float] = []
            judge = threading.Thread(target=lambda: found.append(first_step(listener)))
            judge.start()
            begun = time.perf_counter()
            fit(listener.address, folder)
            judge.join()
            ours = found[0] - begun
    print(f"skate {ours:.2f} s, torchrun {theirs:.2f} s", file=sys.stderr)
    return 100 * ours / theirs


def first_step(listener: Listener) -> float:
    """Let a group take one step; return when it had."""
    with listener.accept() as link:
        link.recv()
        timed(link, 1)
        now = time.perf_counter()
        link.send(0)
    return now


job.run_on(skate, train_steps, train_first_step)
