"""A process that has imported what Ray requires, and forks a worker for each request of `ray_worker_launcher.py`.

Ray starts two interpreters for a worker, one after the other, and both import all of it: nearly two seconds of a core,
and most of the time of a test that starts an actor. A fork has it in memory. It runs Ray's own script for workers, with
the arguments, the environment and the descriptors that the node has chosen.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

# Packages that Ray's workers and the modules of tests import. Ray is not among them: its library reads the id of the
# job from the environment as it is loaded. Skate and the tests are not either: a worker has to find them.
PRELOADED = (
    "asyncio",
    "code",
    "concurrent.futures.thread",
    "faulthandler",
    "filelock",
    "google.protobuf.any_pb2",
    "google.protobuf.internal.builder",
    "google.protobuf.json_format",
    "google.protobuf.timestamp_pb2",
    "importlib.metadata",
    "jsonschema",
    "logging.handlers",
    "msgpack",
    "mmap",
    "multiprocessing.pool",
    "numpy.random",
    "packaging.version",
    "pdb",
    "psutil",
    "pyarrow.json",
    "pydantic.main",
    "pydantic.v1",
    "pytest",
    "requests",
    "starlette.datastructures",
    "tarfile",
    "tqdm.auto",
    "tracemalloc",
    "uvloop",
    "wcwidth",
    "yaml",
)


def main(path: str) -> None:
    """Fork workers for the requests at this socket, until standard input ends."""
    sys.path.remove(str(Path(__file__).parent))
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # a collection in a worker would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers that have ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(128)
        print("ready", flush=True)
        request = _fork_for_each_request(listener)
    if request is not None:
        _run_worker(*request)


def _fork_for_each_request(listener: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a request and the worker's standard descriptors in each fork, and at last None in this process."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        with listener.accept()[0] as connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile("rb") as stream:
                request = json.load(stream)
            if os.fork() == 0:
                return request, descriptors
            for each in descriptors:
                os.close(each)


def _run_worker(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run Ray's script for workers as if this process had been started for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for number, each in enumerate(descriptors):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.modules["numpy"].random.seed()  # else all workers draw the same numbers
    script, *_ = sys.argv = request["arguments"]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [str(Path(script).parent), *filter(None, given)]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
