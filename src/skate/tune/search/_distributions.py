"""Distributions of parameters, each defined by its quantile function.

Random and quasi-random search share the quantile functions: one maps pseudo-random numbers of the unit interval
to values, the other maps the coordinates of a low-discrepancy sequence.
"""

from __future__ import annotations

import math
import warnings
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skate.tune.search.sample import Domain

    Floats: TypeAlias = NDArray[np.float64]

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None
Config: TypeAlias = dict[str, Any]

MISSING = object()
_OPEN_UNIT = (1e-16, 1 - 1e-16)  # the normal distribution has no quantile at 0 and 1


def to_generator(random_state: RandomState) -> Any:
    """Return an object whose method `random(size)` draws from the unit interval.

    Args:
        random_state: A seed, a NumPy generator, or None for the global state of NumPy.
    """
    if random_state is None:
        return np.random
    if isinstance(random_state, int | np.integer):
        return np.random.default_rng(int(random_state))
    return random_state


class _BackwardsCompatibleNumpyRng:
    """Random numbers with the methods of NumPy's `Generator`, from any kind of random state.

    Args:
        generator_or_seed: A seed, a NumPy generator, or None for the global state of NumPy.
    """

    _random: Any = None  # a module, the global state, cannot be pickled

    def __init__(self, generator_or_seed: RandomState = None) -> None:
        if generator_or_seed is not None:
            self._random = to_generator(generator_or_seed)

    @property
    def rng(self) -> Any:
        """The generator, or the module `numpy.random`."""
        return np.random if self._random is None else self._random

    @property
    def legacy_rng(self) -> bool:
        """Whether the numbers come from a `RandomState`, such as the global state."""
        return not isinstance(self._random, np.random.Generator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rng, "randint" if name == "integers" and self.legacy_rng else name)


class Sampler:
    """A distribution over the values of a domain.

    A subclass defines `continuous`, which serves random and quasi-random sampling, or `sample`.
    """

    def sample(
        self,
        domain: Domain,
        config: list[Config] | Config | None = None,
        size: int = 1,
        random_state: RandomState = None,
    ) -> Any:
        """Draw values from a domain.

        Args:
            domain: The domain.
            config: The configuration that is being sampled; only functions use it.
            size: The number of values.
            random_state: A seed or NumPy generator; the global state of NumPy if None.

        Returns:
            The value if `size` is 1, else all values.
        """
        values = self.quantile(domain, to_generator(random_state).random(size))
        return domain.cast(values[0]) if size == 1 else values

    def quantile(self, domain: Domain, unit: Floats) -> Any:
        """Map numbers of the unit interval to values of a domain."""
        return domain.from_continuous(self.continuous(*domain.interval(), unit))

    def continuous(self, lower: float, upper: float, unit: Floats) -> Floats:
        """Map numbers of the unit interval to real numbers between two bounds."""
        raise NotImplementedError(f"{type(self).__name__} has no quantile function.")

    def __str__(self) -> str:
        return type(self).__name__.lstrip("_")


class BaseSampler(Sampler):
    """A sampler that is neither uniform nor normal."""


class Uniform(Sampler):
    """The uniform distribution."""

    def continuous(self, lower: float, upper: float, unit: Floats) -> Floats:
        """Map numbers of the unit interval to evenly spread numbers."""
        if math.isinf(lower) or math.isinf(upper):
            raise ValueError(f"A uniform distribution needs finite bounds, got ({lower}, {upper}).")
        return lower + unit * (upper - lower)


class LogUniform(Sampler):
    """The distribution whose logarithm is uniform.

    Args:
        base: Deprecated; has no effect.
    """

    def __init__(self, base: object = MISSING) -> None:
        warn_of_base(base)

    def continuous(self, lower: float, upper: float, unit: Floats) -> Floats:
        """Map numbers of the unit interval to numbers whose logarithms are evenly spread."""
        low, high = math.log(lower), math.log(upper)
        return np.asarray(np.exp(low + unit * (high - low)))


class Normal(Sampler):
    """The normal distribution, truncated to the bounds of the domain.

    Args:
        mean: The mean.
        sd: The standard deviation.

    Raises:
        ValueError: The standard deviation is not positive.
    """

    def __init__(self, mean: float = 0.0, sd: float = 0.0) -> None:
        if not sd > 0:
            raise ValueError(f"The standard deviation of a normal distribution must be positive, got {sd!r}.")
        self.mean = mean
        self.sd = sd

    def continuous(self, lower: float, upper: float, unit: Floats) -> Floats:
        """Map numbers of the unit interval to normally distributed numbers."""
        normal = NormalDist(self.mean, self.sd)
        low = normal.cdf(lower) if lower > -math.inf else 0.0
        high = normal.cdf(upper) if upper < math.inf else 1.0
        levels = np.clip(low + unit * (high - low), *_OPEN_UNIT)
        return np.array([normal.inv_cdf(float(level)) for level in levels])


class Grid(Sampler):
    """Marks a domain of which every value becomes a variant."""

    def continuous(self, lower: float, upper: float, unit: Floats) -> Floats:
        """Raise an error, because a grid is not sampled."""
        raise RuntimeError("The values of a grid are enumerated, not sampled: use generate_variants().")


class Quantized(Sampler):
    """A distribution over multiples of a number; both bounds of the domain are inclusive.

    Args:
        sampler: The distribution before it is rounded.
        q: The number.

    Raises:
        ValueError: The number is not positive.
    """

    def __init__(self, sampler: Sampler, q: float) -> None:
        if not q > 0:
            raise ValueError(f"The quantization q must be positive, got {q!r}.")
        self.sampler = sampler
        self.q = q

    def get_sampler(self) -> Sampler:
        """Return the distribution before it is rounded."""
        return self.sampler

    def quantile(self, domain: Domain, unit: Floats) -> Any:
        """Map numbers of the unit interval to multiples of `q`."""
        first, last = multiples(*domain.interval(), self.q)
        if isinstance(self.sampler, Uniform):
            values = (first + np.floor(unit * (last - first + 1))) * self.q
        else:
            values = self.sampler.continuous(first * self.q, last * self.q, unit)
        return np.array([self.round(domain, value) for value in values])

    def round(self, domain: Domain, value: float) -> Any:
        """Return the multiple within the bounds of the domain that is nearest to a value."""
        lower, upper = domain.interval()
        first, last = multiples(lower, upper, self.q)
        step = min(max(float(np.round(value / self.q)), first), last)
        return domain.cast(min(max(step * self.q, lower), upper))


def multiples(lower: float, upper: float, q: float) -> tuple[float, float]:
    """Return the first and last factor of `q` within the bounds, with a tolerance for rounding errors.

    Raises:
        ValueError: There is none.
    """
    first, last = lower / q, upper / q
    if math.isfinite(first):
        first = round(first) if math.isclose(first, round(first)) else math.ceil(first)
    if math.isfinite(last):
        last = round(last) if math.isclose(last, round(last)) else math.floor(last)
    if first > last:
        raise ValueError(f"No multiple of the quantization {q} is between {lower} and {upper}.")
    return first, last


def warn_of_base(base: object) -> None:
    """Warn if the argument `base` of a log-uniform distribution was passed."""
    if base is not MISSING:
        warnings.warn("The argument `base` has no effect: remove it.", DeprecationWarning, stacklevel=3)
