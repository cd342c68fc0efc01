"""Says, in place of an ImportError of pyarrow, what training cannot be imported without."""

from skate.air._optional import require_extra

require_extra("train", "skate.train", "pyarrow")
