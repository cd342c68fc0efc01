"""Seeds of random operations on datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skate.data._arguments import ArgumentTypeError, check_fields, message

__all__ = ["RandomSeedConfig"]


@dataclass(frozen=True)
class RandomSeedConfig:
    """A seed, and whether each execution of the same dataset derives new values from it.

    Attributes:
        seed: The seed; None draws one from the operating system.
        reseed_after_execution: The next execution of the dataset gives other values, also determined by the seed.
    """

    seed: int | None = None
    reseed_after_execution: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


def seed_of(given: Any) -> RandomSeedConfig:
    """Convert a seed that the user passed: a number, None, or a RandomSeedConfig."""
    if isinstance(given, RandomSeedConfig):
        return given
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return RandomSeedConfig(given, reseed_after_execution=given is None)
    raise ArgumentTypeError(message("seed", "an integer, a RandomSeedConfig or None", given))
