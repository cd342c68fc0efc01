"""Where the workers of torch meet before they are connected: a store that no other user can reach."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from typing import Any

from skate.train._frameworks import addresses
from skate.util import _interfaces, _session

_server: Any = None  # on rank 0: the store that others connect to, kept for as long as the process lives


@dataclass(frozen=True)
class Rendezvous:
    """The place where workers exchange their addresses.

    Attributes:
        host: The address of rank 0.
        port: The port of the store; where the store is a file, a port that is free, for the same.
        file: The store, if it is a file; None if it is a server.
    """

    host: str
    port: int
    file: str | None


def open_store(host: str, world_size: int, timeout: float) -> Rendezvous:
    """Open the store on rank 0: a file where all workers share the folder of the session, else a server.

    Torch's server listens on all addresses of the machine and lets everybody in, unless it is handed a socket that
    listens on one of them. The operating system chooses its port, so that there is no race.
    """
    global _server
    import torch.distributed as dist

    session = _session.session_folder()
    if session is not None:
        folder = tempfile.mkdtemp(prefix="torch-", dir=session)  # of this user alone
        return Rendezvous(host, addresses.claim(), os.path.join(folder, "store"))
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port: int = listener.getsockname()[1]
    _server = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        world_size,
        is_master=True,
        timeout=datetime.timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return Rendezvous(host, port, None)


def connect(rendezvous: Rendezvous, host: str, world_size: int, timeout: float) -> Any:
    """Return the store on a worker, and set the variables by which torch finds addresses.

    Code that calls `init_process_group("gloo")` itself, after it has left the process group, finds the server by
    `MASTER_ADDR` and `MASTER_PORT`; where the store is a file, torch starts a server there.

    Args:
        rendezvous: Where the store is.
        host: The address of this worker, which its connections are bound to.
        world_size: How many workers there are.
        timeout: Seconds to wait for the server.
    """
    import torch.distributed as dist

    os.environ.update({"MASTER_ADDR": rendezvous.host, "MASTER_PORT": str(rendezvous.port)})
    _interfaces.bind_collectives(host)
    if rendezvous.file is not None:
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # of a launcher that has started the program
        return dist.FileStore(rendezvous.file, world_size)  # type: ignore[attr-defined]
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the server is there: rank 0 must not start another
    return _server or dist.TCPStore(  # type: ignore[attr-defined]
        rendezvous.host,
        rendezvous.port,
        world_size,
        is_master=False,
        timeout=datetime.timedelta(seconds=timeout),
    )


def close(rendezvous: Rendezvous) -> None:
    """Delete the store on rank 0 if it is a file. After a failure, it goes with the session's folder."""
    if rendezvous.file is not None:
        shutil.rmtree(os.path.dirname(rendezvous.file), ignore_errors=True)
