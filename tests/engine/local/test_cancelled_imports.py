"""A task that is cancelled while its worker imports a module leaves a worker that can import it."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

import skate
from skate.exceptions import TaskCancelledError


def test_an_import_is_not_left_half_done(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        textwrap.dedent(
            f"""
            import pathlib
            folder = pathlib.Path({str(tmp_path)!r})
            if (folder / "begun").exists():
                raise ImportError("cannot load module more than once")
            (folder / "begun").touch()
            with open(folder / "gate") as gate:  # until the test has cancelled the task
                gate.read()
            """
        )
    )
    for name in ("gate", "never"):
        os.mkfifo(tmp_path / name)

    @skate.remote(max_retries=0)
    def use(folder: str, wait: bool) -> str:
        import sys

        sys.path.insert(0, folder)
        import slow_to_import  # type: ignore[import-not-found]

        if wait:
            open(f"{folder}/never").close()  # nobody writes to it
        return str(slow_to_import.folder)

    skate.init(num_cpus=1)
    try:
        task = use.remote(str(tmp_path), wait=True)
        with (tmp_path / "gate").open("w"):  # opens when the import has come to its gate
            skate.cancel(task)
        with pytest.raises(TaskCancelledError):
            skate.get(task)
        assert skate.get(use.remote(str(tmp_path), wait=False)) == str(tmp_path)
    finally:
        skate.shutdown()
