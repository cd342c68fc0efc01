"""The node process: the last messages of workers that have ended."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, whose end closes the files of the node.
LAST_WORDS = """
import os, socket
from skate._engine.local.node.main import Node
from skate._engine.local.session import folders
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import encode_frame
from skate._engine.local.wire.unix_sockets import connect

session = folders.create(None)
config = {
    "resources": {"CPU": 1.0}, "devices": {}, "labels": {}, "node_id": "00" * 28, "budget": 10**8,
    "auto_preload": False, "fork": False, "private": True, **session._asdict(),
    "memory_monitor": {
        "memory_usage_threshold": 0.95, "memory_monitor_refresh_ms": 0, "task_oom_retries": -1
    },
}
try:
    node = Node(config, None)
    driver = node.machine.connect_driver({}, os.getpid(), 0.0)
    node.machine.start_worker((driver.job, "", False))
    number = max(node.machine.peers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as worker:
        connect(worker, node.session.socket)
        worker.sendall(encode_frame([m.Hello("worker", 1, number, "", failed="the hook is broken")]))
    node.worker_ended(number, 1)
    print(*[peer.info for peer in node.machine.gone])
finally:
    session.remove()
"""


def test_the_last_words_of_a_worker_are_heard_before_its_connection_is_accepted() -> None:
    ran = subprocess.run([sys.executable, "-c", LAST_WORDS], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout == "{'failed': 'the hook is broken'}\n"
