"""Says, in place of an ImportError of torch, what training with it cannot be imported without."""

from skate.air._optional import require_extra

require_extra("train", "skate.train.torch", "torch")
