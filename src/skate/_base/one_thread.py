"""Importing this lets libraries for numbers that are imported afterwards compute in one thread.

OpenMP and what is built on it, below NumPy and torch, read the variable when they are loaded. For some of them
`torch.set_num_threads` comes too late: on ARM, torch goes on to share each product of matrices between threads. So a
process that workers with one processor each are forked from imports this before torch.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
