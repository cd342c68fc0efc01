"""The model of PB2: a Gaussian process over hyperparameters and time. Needs scikit-learn."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    Hyperparameter,
    Kernel,
    NormalizedKernelMixin,
    WhiteKernel,
)
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_STEPS = 200  # newer steps are more informative, and fitting takes cubic time
CANDIDATES = 512
REFINEMENTS = 5
# Constants of the exploration bonus, whose square is C1 + ln(C2 * number of steps).
C1, C2 = 0.2, 0.4


class Step(NamedTuple):
    """The gain of a training step with some hyperparameters."""

    time: float  # at the start
    score: float  # at the start
    values: tuple[float, ...]  # of the hyperparameters, scaled to the unit interval
    gain: float  # per unit of time


class TimeVaryingKernel(NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    """A squared exponential kernel whose correlation decays with the distance in time.

    The columns are the time, the score, and the hyperparameters. Bogunovic et al., Time-Varying Gaussian Process Bandit
    Optimization (2016).

    Args:
        forgetting: The rate at which the correlation decays in time.
        length_scale: The distance at which hyperparameters become independent.
        score_scale: The distance at which scores become independent.
    """

    def __init__(self, forgetting: float = 0.1, length_scale: float = 0.5, score_scale: float = 1.0) -> None:
        self.forgetting = forgetting
        self.length_scale = length_scale
        self.score_scale = score_scale

    @property
    def hyperparameter_forgetting(self) -> Hyperparameter:
        """The bounds of the rate."""
        return Hyperparameter("forgetting", "numeric", (1e-3, 10.0))

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        """The bounds of the distance."""
        return Hyperparameter("length_scale", "numeric", (0.05, 10.0))

    @property
    def hyperparameter_score_scale(self) -> Hyperparameter:
        """The bounds of the distance between scores."""
        return Hyperparameter("score_scale", "numeric", (0.3, 30.0))

    def __call__(self, X: Floats, Y: Floats | None = None, eval_gradient: bool = False) -> Any:  # noqa: N803
        """Return the correlations between points, and their gradient by the logarithms of the parameters."""
        others = X if Y is None else Y
        age = np.abs(X[:, None, 0] - others[None, :, 0])
        scores = ((X[:, None, 1] - others[None, :, 1]) / self.score_scale) ** 2
        squares = ((X[:, None, 2:] - others[None, :, 2:]) ** 2).sum(axis=-1) / self.length_scale**2
        correlation = np.exp(-0.5 * (scores + squares) - self.forgetting * age)
        if not eval_gradient:
            return correlation
        # In the alphabetical order of the parameters.
        slopes = (-self.forgetting * age, squares, scores)
        return correlation, np.dstack([correlation * slope for slope in slopes])

    def is_stationary(self) -> bool:
        """Return True, because only differences count."""
        return True


def suggest(
    steps: Sequence[Step],
    pending: Sequence[tuple[float, ...]],
    time: float,
    score: float,
    rng: np.random.Generator,
) -> tuple[float, ...]:
    """Return the hyperparameters with the largest upper confidence bound of the gain.

    Args:
        steps: The known steps; at least one.
        pending: The hyperparameters of trials that have started at this time, whose gains are not known yet.
        time: The time of the checkpoint to continue from.
        score: Its score.
        rng: The source of random numbers.

    Returns:
        The hyperparameters, scaled to the unit interval.
    """
    with threadpool_limits(limits=1):  # the matrices are small: more threads are slower
        return _suggest(steps, pending, time, score, rng)


def _suggest(
    steps: Sequence[Step],
    pending: Sequence[tuple[float, ...]],
    time: float,
    score: float,
    rng: np.random.Generator,
) -> tuple[float, ...]:
    steps = steps[-MOST_STEPS:]
    context = np.array([(step.time, step.score) for step in steps])
    values = np.array([step.values for step in steps])
    low, high = context.min(axis=0), np.maximum(context.max(axis=0), (time, score))
    width = np.where(high > low, high - low, 1.0)
    here = (np.array([time, score]) - low) / width
    points = np.hstack([(context - low) / width, values])
    gains = np.array([step.gain for step in steps])
    gains = np.clip((gains - gains.mean()) / (gains.std() or 1.0), -2, 2)
    mean_model = _fit(points, gains)
    spread_model = mean_model
    if pending:
        # The spread does not depend on the gains, so trials with unknown gains reduce it around them.
        started = np.array([[*here, *each] for each in pending])
        spread_model = GaussianProcessRegressor(mean_model.kernel_, optimizer=None)
        spread_model.fit(np.vstack([points, started]), np.append(gains, np.zeros(len(pending))))
    bonus = math.sqrt(C1 + max(0.0, math.log(C2 * len(steps))))

    def bound(candidates: Floats) -> Floats:
        inputs = np.hstack([np.tile(here, (len(candidates), 1)), candidates])
        spread = spread_model.predict(inputs, return_std=True)[1]
        return np.asarray(mean_model.predict(inputs) + bonus * spread)

    return _maximize(bound, values.shape[1], rng)


def _fit(points: Floats, gains: Floats) -> GaussianProcessRegressor:
    kernel = ConstantKernel(1.0, (0.1, 10.0)) * TimeVaryingKernel() + WhiteKernel(0.1, (1e-4, 1.0))
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        # With few points, the most likely parameters are often at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points, gains)
    return model


def _maximize(function: Any, dimensions: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Return the best of random points of the unit cube, after a local search."""
    candidates = rng.random((CANDIDATES, dimensions))
    best, scale = candidates[np.argmax(function(candidates))], 0.1
    for _ in range(REFINEMENTS):
        near = best + rng.normal(scale=scale, size=(CANDIDATES // 4, dimensions))
        candidates = np.vstack([best, np.clip(near, 0.0, 1.0)])
        best, scale = candidates[np.argmax(function(candidates))], scale / 2
    return tuple(float(each) for each in best)
