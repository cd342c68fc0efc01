"""Isolate libraries that draw from the global random states of the process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from skate.air import _optional


class GlobalRandom:
    """Global random states that belong to one searcher, and are installed while its library runs.

    The searcher then neither depends on other random numbers of the process nor changes them, and continues
    identically after it was pickled.

    Args:
        seed: The seed; drawn from the global state of NumPy if None.
        torch: Whether the library also draws from the state of PyTorch.
    """

    def __init__(self, seed: int | None, *, torch: bool = False) -> None:
        seed = int(np.random.randint(2**32, dtype=np.uint32)) if seed is None else seed
        self._python = random.Random(seed).getstate()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state()
        self._torch: Any = None
        if torch:
            generator = _optional.load("torch", "This searcher").Generator().manual_seed(seed)
            self._torch = generator.get_state()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the states, and restore those of the process when the context exits."""
        outer = self._swap((self._python, self._numpy, self._torch))
        try:
            yield
        finally:
            self._python, self._numpy, self._torch = self._swap(outer)

    def _swap(self, states: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        old = (random.getstate(), np.random.get_state(), None)
        random.setstate(states[0])
        np.random.set_state(states[1])
        if self._torch is None:
            return old
        torch = _optional.load("torch", "This searcher")
        old_torch = torch.random.get_rng_state()
        torch.random.set_rng_state(states[2])
        return (*old[:2], old_torch)
