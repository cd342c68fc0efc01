"""The start of a node: it forks the template first, so that both load their modules in parallel."""

from __future__ import annotations

import json
import os
import signal
import sys

from skate._engine.common import open_files
from skate._engine.common.platform import system
from skate._engine.common.process_limits import retry_with_deadline


def main(text: str) -> None:
    """Run a node with a configuration in JSON."""
    config = json.loads(text)
    if config.get("detach"):
        if retry_with_deadline(os.fork):
            os._exit(0)  # the starting process then has no child to wait for
        os.setsid()
        os.chdir("/")
    open_files.raise_limit()  # inherited by workers
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for role in ("driver_fd", "life_fd", "ready_fd"):
        if role in config:
            os.set_inheritable(config[role], False)
    system.lead()
    _load_msgspec()
    from skate._engine.local.worker.template import start_template

    template = start_template(config) if config.get("fork", True) else None
    from skate._engine.local.node.main import serve

    serve(config, template)


def _load_msgspec() -> None:
    """Load msgspec without typing_extensions, which imports `inspect`: together a seventh of the start of a node.

    From Python 3.11 on, msgspec takes nothing from typing_extensions that `typing` does not have. This process has no
    other thread yet, which might import it meanwhile.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # makes the import fail, as if it were not installed
    import msgspec  # noqa: F401

    del sys.modules[name]
