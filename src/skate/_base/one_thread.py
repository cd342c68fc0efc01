"""Importing this module limits numerical libraries that are imported later to one thread.

OpenMP and the libraries on top of it, below NumPy and torch, read the variable when they are loaded. For some of them
`torch.set_num_threads` is too late: on ARM, torch continues to split matrix products between threads. So the template
of workers with one CPU each imports this module before torch.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
