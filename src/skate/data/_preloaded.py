"""What a process needs that reads datasets, for `runtime_env={"preload": …}`: imported once, and forked from there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import skate.data._iteration.splits  # noqa: F401  # what readers and their server run

pa.array(np.zeros(1))  # Arrow imports pandas with the first array that it is given, if there is pandas
