"""Small checkpoints that the training functions of tests write and resume from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from skate.train import Checkpoint


def write_checkpoint(**files: str) -> Checkpoint:
    """Return a new folder with files."""
    # The temporary directory of this run, also in the process of pytest, which has looked it up before there was one.
    folder = tempfile.mkdtemp(dir=os.environ["TMPDIR"])
    for name, text in files.items():
        Path(folder, name).write_text(text)
    return Checkpoint(folder)


def read(checkpoint: Checkpoint | None, name: str) -> str:
    """Return what is in a file of a checkpoint, which has to be there."""
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        return Path(folder, name).read_text()


def next_step(checkpoint: Checkpoint | None, name: str = "step") -> int:
    """Return the step after the one that a checkpoint was written at; the first, if there is none."""
    return 0 if checkpoint is None else int(read(checkpoint, name)) + 1
