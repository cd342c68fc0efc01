"""Report missing dependencies of `skate.data`, instead of an ImportError of pyarrow."""

from skate.air._optional import require_extra

require_extra("data", "skate.data", "numpy", "polars", "pyarrow")
