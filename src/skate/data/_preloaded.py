"""Modules for processes that read datasets, for `runtime_env={"preload": …}`: imported once, then forked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import skate.data._iteration.splits  # noqa: F401  # what readers and their server run

pa.array(np.zeros(1))  # Arrow imports pandas, if installed, with the first array
