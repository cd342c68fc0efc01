"""Checks that the requirements of training are installed, before an import of pyarrow fails."""

from skate.air._optional import require_extra

require_extra("train", "skate.train", "pyarrow")
