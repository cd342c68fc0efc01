"""Training in processes that torchrun, or another launcher which tells as much, has started."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from skate.train._workers import sessions
from skate.train._workers.company import Company
from skate.train._workers.sessions import Place

if TYPE_CHECKING:
    from skate.train.torch.config import TorchConfig

_TOLD = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextlib.contextmanager
def company(config: TorchConfig) -> Iterator[Company]:
    """Join the others that were launched with this process, if it was launched, for the time of a `with` block."""
    if sessions.is_active() or not all(name in os.environ for name in _TOLD):
        # A training function may train something itself: its variables are of the outer run.
        yield Company()
        return
    import torch
    import torch.distributed as dist

    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    joins = not dist.is_initialized()
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    if joins:
        backend = config.backend or ("nccl" if torch.cuda.is_available() else "gloo")
        dist.init_process_group(
            backend,
            timeout=datetime.timedelta(seconds=config.timeout_s),
            device_id=torch.device("cuda", local_rank) if "nccl" in backend else None,
        )
    rank = dist.get_rank()
    place = Place(rank, dist.get_world_size(), local_rank, local_size, rank // local_size)
    try:
        yield Company(place, _shared)
    finally:
        if joins:
            dist.destroy_process_group()


def _shared(value: Any) -> Any:
    """Return what rank 0 has given; all are waited for, so that it is a barrier too."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found[0]
