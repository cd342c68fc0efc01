"""The rendezvous store of torch workers, which no other user can reach."""

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

_server: Any = None  # on rank 0: the store that others connect to, alive until the process ends


@dataclass(frozen=True)
class Rendezvous:
    """The store through which workers exchange their addresses.

    Attributes:
        host: The address of rank 0.
        port: The port of the store's server, or a free port if the store is a file.
        file: The path of the store; None if it is a server.
    """

    host: str
    port: int
    file: str | None


def open_store(host: str, world_size: int, timeout: float) -> Rendezvous:
    """Open the store on rank 0: a file if all workers share the session's folder, else a server.

    Torch's server listens on all addresses of the machine, without authentication, unless it is given a listening
    socket. The operating system chooses the port of that socket, so there is no race.
    """
    global _server
    import torch.distributed as dist

    session = _session.session_folder()
    if session is not None:
        folder = tempfile.mkdtemp(prefix="torch-", dir=session)  # accessible to this user only
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
    """Return the store on a worker, and set torch's environment variables.

    Code that destroys the process group and calls `init_process_group("gloo")` itself finds the server by `MASTER_ADDR`
    and `MASTER_PORT`; if the store is a file, torch starts a server there.

    Args:
        rendezvous: The store.
        host: The address of this worker, to which its connections are bound.
        world_size: The number of workers.
        timeout: Seconds to wait for the server.
    """
    import torch.distributed as dist

    os.environ.update({"MASTER_ADDR": rendezvous.host, "MASTER_PORT": str(rendezvous.port)})
    _interfaces.bind_collectives(host)
    if rendezvous.file is not None:
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # set by a launcher of the program
        return dist.FileStore(rendezvous.file, world_size)  # type: ignore[attr-defined]
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the server runs: rank 0 must not start another
    return _server or dist.TCPStore(  # type: ignore[attr-defined]
        rendezvous.host,
        rendezvous.port,
        world_size,
        is_master=False,
        timeout=datetime.timedelta(seconds=timeout),
    )


def close(rendezvous: Rendezvous) -> None:
    """Delete the store on rank 0 if it is a file. After a failure, it is deleted with the session's folder."""
    if rendezvous.file is not None:
        shutil.rmtree(os.path.dirname(rendezvous.file), ignore_errors=True)
