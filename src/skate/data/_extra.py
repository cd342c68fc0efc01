"""Says, in place of an ImportError of pyarrow, what datasets cannot be imported without."""

from skate.air._optional import require_extra

require_extra("data", "skate.data", "numpy", "polars", "pyarrow")
