"""A tiny DDP loop that `torchrun` and a trainer both run: it takes steps when it is told to, and says how fast.

torchrun --nproc-per-node 2 ddp_loop.py ADDRESS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EVERY = 50  # steps between reports


def take_turns(name: str, address: str, report: Callable[[dict[str, Any]], None]) -> None:
    """Take as many steps as rank 0 is told, until it is told none.

    Args:
        name: How rank 0 calls itself where it is told.
        address: Where that is.
        report: Takes metrics now and then.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 32)

    def steps(count: int) -> None:
        for step in range(count):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            if step % EVERY == EVERY - 1:
                report({"loss": loss.item()})

    link = Client(address) if dist.get_rank() == 0 else None
    if link is not None:
        link.send(name)
    told = torch.zeros(1)
    while True:
        if link is not None:
            told[0] = link.recv()
        dist.broadcast(told, 0)
        count = int(told.item())
        if count == 0:
            break
        begun = time.perf_counter()
        steps(count)
        if link is not None:
            link.send(time.perf_counter() - begun)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    take_turns("torchrun", sys.argv[1], lambda metrics: None)
    dist.destroy_process_group()
