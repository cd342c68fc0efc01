"""A language model of a billion parameters on one GPU: through TorchTrainer with streaming data, and without Skate.

    python bench/gpu/train_lm.py                 # bf16 on a GPU: both, in turn, several times
    python bench/gpu/train_lm.py --tiny          # a small one on a CPU, to see that it works

Both run the same loop on the same model, compiled. With Skate, tokens come from a dataset whose rows are made by a
worker while the GPU computes, and metrics are reported every ten steps; without, tokens lie ready in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decoder import Decoder, Size

EVERY = 10  # steps between two looks at the loss
RAMP = 40  # steps until the learning rate is reached


@dataclass(frozen=True)
class Job:
    """What is trained, and how long."""

    size: Size
    batch: int = 16
    warm_up: int = 10
    steps: int = 60
    device: str = "cuda"

    @property
    def tokens_of_a_step(self) -> int:
        """Tokens that a step trains on."""
        return self.batch * self.size.length


def loop(
    job: Job, batches: Iterable[torch.Tensor], say: Callable[[dict[str, float]], None]
) -> dict[str, float]:
    """Train, and return what it took: the loop that both ways share."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    on_gpu = job.device == "cuda"
    model = Decoder(job.size).to(job.device)
    parameters = sum(each.numel() for each in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=on_gpu)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / RAMP))
    compiled = torch.compile(model) if on_gpu else model
    waited = begun = 0.0
    losses = []
    coming = iter(batches)
    for step in range(job.warm_up + job.steps):
        if step == job.warm_up:
            _finish(on_gpu)
            waited, begun = 0.0, time.perf_counter()
        asked = time.perf_counter()
        tokens = next(coming)
        waited += time.perf_counter() - asked
        with torch.autocast(job.device, torch.bfloat16, enabled=on_gpu):
            loss = compiled(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % EVERY == 0:
            losses.append(loss.item())
            say({"step": step + 1, "loss": losses[-1]})
    _finish(on_gpu)
    seconds = time.perf_counter() - begun
    rate = job.steps * job.tokens_of_a_step / seconds
    return {
        "parameters": parameters,
        "tokens_per_s": rate,
        "tflops": rate * job.size.flops_of_a_token(parameters) / 1e12,
        "waited_for_data": waited / seconds,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }


def _finish(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


def made(ids: np.ndarray[Any, Any], size: Size) -> np.ndarray[Any, Any]:
    """Return the token sequences of some rows: walks through the vocabulary with steps that can be learned."""
    strides = 1 + ids[:, None] % 7
    return (ids[:, None] * 131 + strides * np.arange(size.length + 1)) % size.vocabulary


# ------------------------------------------------------------ the two ways


def without_skate(job: Job) -> dict[str, float]:
    """Train in this process, on tokens that lie ready."""
    pin = job.device == "cuda"
    rows = np.arange(job.batch * (job.warm_up + job.steps))
    ready = [torch.from_numpy(made(part, job.size)) for part in np.split(rows, job.warm_up + job.steps)]
    ready = [each.pin_memory() for each in ready] if pin else ready

    def batches() -> Iterator[torch.Tensor]:
        for each in ready:
            yield each.to(job.device, non_blocking=True)

    return loop(job, batches(), lambda metrics: None)


def with_skate(job: Job) -> dict[str, float]:
    """Train through TorchTrainer, on a dataset that is made while it trains."""
    import skate
    from skate import train
    from skate.train import RunConfig, ScalingConfig
    from skate.train.torch import TorchTrainer

    size = job.size
    rows = job.batch * (job.warm_up + job.steps)

    def tokens(batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        return {"tokens": made(batch["id"], size)}

    def function() -> dict[str, float]:
        shard = train.get_dataset_shard("train")
        batches = shard.iter_torch_batches(
            batch_size=job.batch, prefetch_batches=4, pin_memory=job.device == "cuda"
        )
        return loop(job, (batch["tokens"] for batch in batches), train.report)

    skate.init()
    try:
        with tempfile.TemporaryDirectory() as folder:
            trainer = TorchTrainer(
                function,
                scaling_config=ScalingConfig(num_workers=1, use_gpu=job.device == "cuda"),
                run_config=RunConfig(storage_path=folder),
                datasets={"train": skate.data.range(rows).map_batches(tokens, batch_size=64)},
            )
            found: dict[str, float] = trainer.fit().return_value
    finally:
        skate.shutdown()
    return found


WAYS = {"plain": without_skate, "skate": with_skate}


def apart(way: str) -> dict[str, float]:
    """Run one way in a process of its own, with the same arguments: each begins with an empty GPU."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", way]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def matmul_tflops(width: int = 8192, times: int = 50) -> float:
    """Return the rate of a large bf16 matrix product on this GPU, the median of several."""
    a, b = (torch.randn(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(times + 10):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        a @ b
        after.record()
        after.synchronize()
        seconds.append(before.elapsed_time(after) / 1000)
    return 2 * width**3 / statistics.median(seconds[10:]) / 1e12


def main() -> None:
    """Measure, print, and write figures.json beside this file or where --out says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a small model on a CPU")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--only", choices=WAYS, help="one of the two, once")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    if given.tiny:
        small = Size(vocabulary=97, width=32, layers=2, heads=2, inner=64, length=32)
        job = Job(small, batch=4, warm_up=2, steps=18, device="cpu")
    else:
        job = Job(Size(), batch=given.batch, steps=given.steps)
    if given.only is not None:
        print(json.dumps(WAYS[given.only](job)))
        return
    found: dict[str, list[dict[str, float]]] = {"plain": [], "skate": []}
    for number in range(given.rounds):
        for name in WAYS:
            found[name].append(apart(name))
            print(f"round {number + 1}, {name}: {json.dumps(found[name][-1])}", flush=True)
    rates = {name: max(each["tokens_per_s"] for each in rounds) for name, rounds in found.items()}
    summary: dict[str, Any] = {"job": asdict(job), "rounds": found, "ratio": rates["skate"] / rates["plain"]}
    print(
        f"tokens/s: {rates['plain']:,.0f} plain, {rates['skate']:,.0f} with Skate: ratio {summary['ratio']:.4f}"
    )
    if job.device == "cuda":
        summary["gpu"] = torch.cuda.get_device_name()
        summary["torch"] = torch.__version__
        summary["matmul_tflops"] = matmul_tflops()
        best = max(each["tflops"] for each in found["skate"])
        summary["utilisation"] = best / summary["matmul_tflops"]
        print(
            f"{best:.0f} TFLOP/s of {summary['matmul_tflops']:.0f} that a bf16 matrix product reaches: "
            f"{summary['utilisation']:.1%}"
        )
    if given.out is not None:
        given.out.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
