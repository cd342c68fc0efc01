"""The imports of processes that read datasets, for `runtime_env={"preload": …}`: loaded once, then forked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import skate.data._iteration.splits  # noqa: F401  # the code of readers and of their coordinator

pa.array(np.zeros(1))  # Arrow imports pandas, if installed, with its first array
