"""Checks that torch is installed, before its import fails."""

from skate.air._optional import require_extra

require_extra("train", "skate.train.torch", "torch")
