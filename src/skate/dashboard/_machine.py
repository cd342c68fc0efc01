"""Facts about this machine and its processes, under the names of Ray's dashboard."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Final

import psutil

from skate._api import observer as observers

__all__ = ["machine", "process"]

MEBIBYTE: Final = 1 << 20


def machine(history: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the machine.

    Args:
        history: The samples of the machine.
    """
    usage = observers.memory_usage()
    logical = psutil.cpu_count() or 1
    load = [round(value, 2) for value in os.getloadavg()]
    cpu = next((value for value in reversed(history["cpu"]) if value is not None), 0.0)
    return {
        "now": time.time(),
        "hostname": socket.gethostname(),
        "cpu": cpu,
        "cpus": [logical, psutil.cpu_count(logical=False) or logical],
        "mem": [
            usage.total,
            usage.total - usage.used,
            round(100 * usage.used / usage.total, 1),
            usage.used,
        ],
        "bootTime": psutil.boot_time(),
        "loadAvg": [load, [round(value / logical, 2) for value in load]],
        "disk": {"/": psutil.disk_usage("/")._asdict()},
        "gpus": [_gpu(each) for each in history["gpu"]],
        "tpus": [],
    }


def _gpu(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": each["index"],
        "name": each["name"],
        "utilizationGpu": int(each["utilization"][-1]) if each["utilization"] else None,
        "memoryUsed": int(each["memory"][-1]) // MEBIBYTE if each["memory"] else 0,
        "memoryTotal": each["memory_limit"] // MEBIBYTE,
    }


def process(pid: int) -> dict[str, Any] | None:
    """Return the facts about a process; None if it has ended."""
    try:
        found = psutil.Process(pid)
        with found.oneshot():
            memory = found.memory_info()
            return {
                "pid": pid,
                "createTime": found.create_time(),
                "cpuPercent": found.cpu_percent(None),
                "cmdline": found.cmdline(),
                "memoryInfo": {"rss": memory.rss, "vms": memory.vms},
                "numFds": found.num_fds(),
            }
    except psutil.Error:
        return None  # or it runs in another container
