"""Search spaces: the domains of parameters and the distributions they are sampled from.

Programs tell domains apart by the class of their distribution, as in `isinstance(domain.sampler, Integer._Uniform)`, so
each domain has its own classes. They also look up the type of a domain's values in the signature of its `is_valid`, so
this module does not postpone the evaluation of annotations.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from copy import copy
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from skate.tune.search._distributions import (
    MISSING,
    BaseSampler,
    Config,
    Grid,
    LogUniform,
    Normal,
    Quantized,
    RandomState,
    Sampler,
    Uniform,
    multiples,
    warn_of_base,
)
from skate.tune.search._distributions import (
    _BackwardsCompatibleNumpyRng as _BackwardsCompatibleNumpyRng,  # a name that packages use
)

if TYPE_CHECKING:
    from skate.tune.search._distributions import Floats

__all__ = [
    "BaseSampler",
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "RandomState",
    "Sampler",
    "Uniform",
    "choice",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]


class Domain:
    """The values that a parameter can have, and the distribution they are sampled from."""

    sampler: Sampler | None = None
    default_sampler_cls: ClassVar[type[Sampler] | None] = None

    def cast(self, value: Any) -> Any:
        """Convert a value to the type of the domain."""
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Set the distribution.

        Raises:
            ValueError: The domain has a distribution, and `allow_override` is false.
        """
        if self.sampler is not None and not allow_override:
            raise ValueError(
                f"{self!r} already has the sampler {self.sampler}; it cannot also have {sampler}. Choose one of them."
            )
        self.sampler = sampler

    def get_sampler(self) -> Sampler:
        """Return the distribution, or the default one if none is set."""
        if self.sampler is not None:
            return self.sampler
        if self.default_sampler_cls is None:
            raise ValueError(f"{type(self).__name__} has no sampler: call set_sampler().")
        return self.default_sampler_cls()

    def sample(
        self,
        config: list[Config] | Config | None = None,
        size: int = 1,
        random_state: RandomState = None,
    ) -> Any:
        """Draw values.

        Args:
            config: The configuration that is being sampled; only functions use it.
            size: The number of values.
            random_state: A seed or NumPy generator; the global state of NumPy if None.

        Returns:
            The value if `size` is 1, else all values.
        """
        return self.get_sampler().sample(self, config=config, size=size, random_state=random_state)

    def is_grid(self) -> bool:
        """Return whether every value becomes a variant."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Return whether values come from a function."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Return whether a value is in the domain."""
        raise NotImplementedError(f"{type(self).__name__} does not define is_valid().")

    def interval(self) -> tuple[float, float]:
        """Return the real interval that `from_continuous` maps to values.

        Raises:
            ValueError: The values are not ordered.
        """
        raise ValueError(f"{type(self).__name__} is not sampled from an interval.")

    def from_continuous(self, values: "Floats") -> Any:
        """Map numbers of the interval to values of the domain."""
        return values

    @property
    def domain_str(self) -> str:
        """The values, for messages."""
        return "(unknown)"

    def _with_sampler(self, sampler: Sampler, allow_override: bool = False) -> Self:
        new = copy(self)
        new.set_sampler(sampler, allow_override=allow_override)
        return new

    def __repr__(self) -> str:
        sampler = "" if self.sampler is None else f", {self.sampler}"
        return f"{type(self).__name__}({self.domain_str}{sampler})"


class _Range(Domain):
    """Numbers between two bounds."""

    lower: Any
    upper: Any
    _Uniform: ClassVar[type[Uniform]]
    _LogUniform: ClassVar[type[LogUniform]]

    def _check_order(self) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not isinstance(bound, Real) or math.isnan(bound):
                raise TypeError(f"The {name} bound of {type(self).__name__} must be a number, got {bound!r}.")
        if self.lower > self.upper:
            raise ValueError(f"The lower bound {self.lower} is greater than the upper bound {self.upper}.")

    def uniform(self) -> Self:
        """Return the domain with a uniform distribution.

        Raises:
            ValueError: A bound is missing, or the domain has a distribution.
        """
        if math.isinf(self.lower) or math.isinf(self.upper):
            raise ValueError(f"A uniform distribution needs finite bounds, got {self.domain_str}.")
        return self._with_sampler(self._Uniform())

    def loguniform(self, base: object = MISSING) -> Self:
        """Return the domain with a distribution whose logarithm is uniform.

        Args:
            base: Deprecated; has no effect.

        Raises:
            ValueError: A bound is missing or not positive, or the domain has a distribution.
        """
        warn_of_base(base)
        if not (self.lower > 0 and self.upper < math.inf):
            raise ValueError(
                f"A log-uniform distribution needs positive finite bounds, got {self.domain_str}. "
                "Pass the bounds themselves, not their logarithms."
            )
        return self._with_sampler(self._LogUniform())

    def interval(self) -> tuple[float, float]:
        """Return the bounds."""
        return self.lower, self.upper

    def is_valid(self, value: Any) -> bool:
        """Return whether a value is a number within the bounds."""
        return isinstance(value, Real) and bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        """The bounds, for messages."""
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """Floating-point numbers between two bounds.

    Args:
        lower: The lower bound; None for no bound.
        upper: The upper bound; None for no bound.
    """

    class _Uniform(Uniform):
        """The uniform distribution of floating-point numbers."""

    class _LogUniform(LogUniform):
        """The log-uniform distribution of floating-point numbers."""

    class _Normal(Normal):
        """The normal distribution of floating-point numbers."""

    default_sampler_cls = _Uniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        self.lower: float = -math.inf if lower is None else lower
        self.upper: float = math.inf if upper is None else upper
        self._check_order()

    def cast(self, value: Any) -> float:
        """Convert a value to float."""
        return float(value)

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Self:
        """Return the domain with a normal distribution, which is truncated to the bounds if there are any."""
        return self._with_sampler(self._Normal(mean, sd))

    def quantized(self, q: float) -> Self:
        """Return the domain with values that are multiples of a number.

        Raises:
            ValueError: A bound is not a multiple of `q`.
        """
        new = self._with_sampler(Quantized(self.get_sampler(), q), allow_override=True)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isfinite(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(f"The {name} bound {bound} is not a multiple of the quantization {q}.")
        return new

    def is_valid(self, value: float) -> bool:
        """Return whether a value is a number within the bounds."""
        return super().is_valid(value)

    def from_continuous(self, values: "Floats") -> Any:
        """Clip numbers to the bounds, which rounding errors may exceed."""
        return np.minimum(np.maximum(values, self.lower), self.upper)  # a tenth of the time of np.clip


class Integer(_Range):
    """Integers between two bounds.

    The upper bound is exclusive, unless the domain is quantized.

    Args:
        lower: The lower bound.
        upper: The upper bound.
    """

    class _Uniform(Uniform):
        """The uniform distribution of integers."""

    class _LogUniform(LogUniform):
        """The log-uniform distribution of integers."""

    default_sampler_cls = _Uniform

    def __init__(self, lower: int, upper: int) -> None:
        self.lower: int = lower
        self.upper: int = upper
        self._check_order()

    def cast(self, value: Any) -> int:
        """Convert a value to int."""
        return int(value)

    def quantized(self, q: int) -> Self:
        """Return the domain with values that are multiples of a number; the upper bound becomes inclusive.

        Raises:
            ValueError: No multiple of `q` lies between the bounds.
        """
        new = self._with_sampler(Quantized(self.get_sampler(), q), allow_override=True)
        multiples(self.lower, self.upper, q)
        return new

    def is_valid(self, value: int) -> bool:
        """Return whether a value is a number within the bounds."""
        return super().is_valid(value)

    def from_continuous(self, values: "Floats") -> Any:
        """Round numbers down to integers less than the upper bound."""
        if self.lower == self.upper:
            raise ValueError(f"No integer is in [{self.lower}, {self.upper}): the upper bound is exclusive.")
        return np.clip(np.floor(values), self.lower, self.upper - 1).astype(int)


class Categorical(Domain):
    """One of several values.

    Args:
        categories: The values.
    """

    class _Uniform(Uniform):
        """The uniform distribution of categories."""

    default_sampler_cls = _Uniform

    def __init__(self, categories: Iterable[Any]) -> None:
        self.categories = list(categories)
        if not self.categories:
            raise ValueError("A choice needs at least one value, got none.")

    def uniform(self) -> Self:
        """Return the domain with a uniform distribution."""
        return self._with_sampler(self._Uniform())

    def grid(self) -> Self:
        """Return the domain with every value as a variant."""
        return self._with_sampler(Grid())

    def interval(self) -> tuple[float, float]:
        """Return the interval whose unit sections stand for the categories."""
        return 0, len(self.categories)

    def from_continuous(self, values: "Floats") -> list[Any]:
        """Return the categories at positions."""
        return [self.categories[int(position)] for position in values]

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Any:
        return self.categories[item]

    def is_valid(self, value: Any) -> bool:
        """Return whether a value is one of the categories."""
        return value in self.categories

    @property
    def domain_str(self) -> str:
        """The categories, for messages."""
        return str(self.categories)


class _Call(BaseSampler):
    """Calls the function of a `Function` domain."""

    def sample(
        self,
        domain: Domain,
        config: list[Config] | Config | None = None,
        size: int = 1,
        random_state: RandomState = None,
    ) -> Any:
        function = cast(Function, domain)
        configs = config if isinstance(config, list) else [config] * size
        values = [function.func(each) if function.pass_config else function.func() for each in configs]
        return values[0] if size == 1 else values


class Function(Domain):
    """The values that a function returns.

    Args:
        func: A function of the configuration, or of nothing.

    Raises:
        ValueError: The function needs more arguments.
    """

    default_sampler_cls = _Call

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.pass_config = _accepts(func, 1)
        if not self.pass_config and not _accepts(func, 0):
            raise ValueError(
                f"sample_from() needs a function of no or one argument, the configuration, got {func!r} with the "
                f"signature {inspect.signature(func)}."
            )

    def is_function(self) -> bool:
        """Return True."""
        return True

    def is_valid(self, value: Any) -> bool:
        """Return True, because a function may return any value."""
        return True

    @property
    def domain_str(self) -> str:
        """The function, for messages."""
        return f"{self.func}()"


def _accepts(func: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(func).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return count == 1
    return True


def sample_from(func: Callable[..., Any]) -> Function:
    """Take values from a function, which may depend on other values of the configuration.

    Args:
        func: A function of the configuration, or of nothing. Values that it reads are sampled first.

    Returns:
        The domain.
    """
    return Function(func)


def uniform(lower: float, upper: float) -> Float:
    """Sample a float uniformly between `lower` and `upper`."""
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """Sample a multiple of `q` uniformly between `lower` and `upper`, both inclusive."""
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: object = MISSING) -> Float:
    """Sample a float between `lower` and `upper` whose logarithm is uniform; `base` has no effect."""
    warn_of_base(base)
    return Float(lower, upper).loguniform()


def qloguniform(lower: float, upper: float, q: float, base: object = MISSING) -> Float:
    """Sample a multiple of `q` log-uniformly between `lower` and `upper`, both inclusive; `base` has no effect."""
    warn_of_base(base)
    return Float(lower, upper).loguniform().quantized(q)


def choice(categories: Iterable[Any]) -> Categorical:
    """Sample one of several values."""
    return Categorical(categories).uniform()


def randint(lower: int, upper: int) -> Integer:
    """Sample an integer uniformly from `lower`, inclusive, to `upper`, exclusive."""
    return Integer(lower, upper).uniform()


def lograndint(lower: int, upper: int, base: object = MISSING) -> Integer:
    """Sample an integer log-uniformly from `lower`, inclusive, to `upper`, exclusive; `base` has no effect."""
    warn_of_base(base)
    return Integer(lower, upper).loguniform()


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Sample a multiple of `q` uniformly between `lower` and `upper`, both inclusive."""
    return Integer(lower, upper).uniform().quantized(q)


def qlograndint(lower: int, upper: int, q: int, base: object = MISSING) -> Integer:
    """Sample a multiple of `q` log-uniformly between `lower` and `upper`, both inclusive; `base` has no effect."""
    warn_of_base(base)
    return Integer(lower, upper).loguniform().quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Sample a float from a normal distribution with a mean and a standard deviation."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """Sample a float from a normal distribution, rounded to a multiple of `q`."""
    return Float(None, None).normal(mean, sd).quantized(q)
