"""The alias in child processes: a folder on their search path whose module `ray` installs it.

The `spawn` and `forkserver` methods of multiprocessing, joblib and `subprocess` start new interpreters. Those inherit
PYTHONPATH, and multiprocessing also copies `sys.path`, so the folder is in both.
"""

from __future__ import annotations

import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "import_path")
VARIABLE = "PYTHONPATH"


def share() -> None:
    """Make `import ray` mean Skate in Python processes that this one starts."""
    withdraw()
    sys.path.insert(1, FOLDER)  # the position of PYTHONPATH, after the folder of the script
    inherited = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = f"{FOLDER}{os.pathsep}{inherited}" if inherited else FOLDER


def withdraw() -> None:
    """Undo `share`, even if this process has inherited it."""
    if FOLDER in sys.path:
        sys.path[:] = [entry for entry in sys.path if entry != FOLDER]
    inherited = os.environ.get(VARIABLE, "")
    if FOLDER in inherited:
        kept = [entry for entry in inherited.split(os.pathsep) if entry != FOLDER]
        if kept:
            os.environ[VARIABLE] = os.pathsep.join(kept)
        else:
            del os.environ[VARIABLE]
