"""Record what an engine computes with torch's profiler."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from skate._base.suggestions import did_you_mean

_KEYS = ("profiler", "torch_profiler_dir")
_EXAMPLE = "{'profiler': 'torch', 'torch_profiler_dir': '/tmp/traces'}"


def check_profiler_config(config: Mapping[str, Any]) -> None:
    """Check the engine argument `profiler_config`, whose keys are vLLM's.

    Raises:
        ValueError: If a key is unknown, or a value is wrong.
    """
    for key in config:
        if key not in _KEYS:
            raise ValueError(f"profiler_config has no key {key!r}.{did_you_mean(key, _KEYS)}")
    if config.get("profiler", "torch") != "torch" or not config.get("torch_profiler_dir"):
        raise ValueError(f"profiler_config must be like {_EXAMPLE}, got {dict(config)!r}")


class Profiler:
    """Records the steps of an engine. Use it in the thread that runs the steps.

    Args:
        config: The engine argument `profiler_config`; None disables the profiler.
    """

    def __init__(self, config: Mapping[str, Any] | None) -> None:
        self._folder = None if config is None else Path(config["torch_profiler_dir"])
        self._running: torch.profiler.profile | None = None

    def start(self) -> None:
        """Start to record.

        Raises:
            ValueError: If the profiler is disabled, or records already.
        """
        if self._folder is None:
            raise ValueError(f"the profiler needs a folder: set profiler_config={_EXAMPLE}")
        if self._running is not None:
            raise ValueError("the profiler is recording already; stop it first")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._running = torch.profiler.profile(activities=activities)
        self._running.start()

    def stop(self) -> Path:
        """Stop, and return the trace that was written, which Perfetto and `chrome://tracing` show.

        Raises:
            ValueError: If the profiler does not record.
        """
        if self._running is None or self._folder is None:
            raise ValueError("the profiler is not recording; start it first")
        running, self._running = self._running, None
        running.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{os.getpid()}-{time.time_ns()}.pt.trace.json"
        running.export_chrome_trace(str(path))
        return path
