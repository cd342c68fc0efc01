"""A script that a node of Ray runs to start a worker: it has `ray_worker_template.py` fork one.

A worker with a runtime environment starts as Ray starts it, since its interpreter has to begin in that environment.
"""

from __future__ import annotations

import json
import os
import socket
import sys

# Variables of the environment: the path of the template's socket, and that of the script with which Ray starts workers.
SOCKET = "WORKER_TEMPLATE_SOCKET"
SETUP_WORKER = "WORKER_TEMPLATE_SETUP_WORKER"

CONTEXT = "--serialized-runtime-env-context="
LANGUAGE = "--language="


def main(arguments: list[str]) -> None:
    """Ask the template for a worker with these arguments, or become the script with which Ray starts one."""
    contexts = [each.removeprefix(CONTEXT) for each in arguments if each.startswith(CONTEXT)]
    of_the_worker = [each for each in arguments if not each.startswith((CONTEXT, LANGUAGE))]
    if any(json.loads(each) for each in contexts):
        os.execv(sys.executable, [sys.executable, os.environ[SETUP_WORKER], *arguments])
    request = {"arguments": of_the_worker, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # until the worker has been forked


if __name__ == "__main__":
    main(sys.argv[1:])
