"""Domains and distributions of parameters."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.tune.search.sample import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
    Quantized,
    RandomState,
    _BackwardsCompatibleNumpyRng,
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

BOUNDED = {
    "uniform": (uniform(-5, -1), -5, -1),
    "quniform": (quniform(3.2, 5.4, 0.2), 3.2, 5.4),
    "loguniform": (loguniform(1e-4, 1e-2), 1e-4, 1e-2),
    "qloguniform": (qloguniform(1e-4, 1e-1, 5e-5), 1e-4, 1e-1),
    "randint": (randint(-9, 15), -9, 14),
    "lograndint": (lograndint(1, 10), 1, 9),
    "qrandint": (qrandint(-21, 12, 3), -21, 12),
    "qlograndint": (qlograndint(2, 20, 2), 2, 20),
    "truncated normal": (Float(-1, 2).normal(0, 3), -1, 2),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_samples_lie_within_the_bounds(name: str) -> None:
    domain, lower, upper = BOUNDED[name]
    values = domain.sample(size=500, random_state=3)
    assert min(values) >= lower
    assert max(values) <= upper
    assert all(domain.is_valid(value) for value in values)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (randint(-2, 3), {-2, -1, 0, 1, 2}),
        (lograndint(1, 5), {1, 2, 3, 4}),
        (qrandint(1, 10, 3), {3, 6, 9}),
        (qrandint(1, 4), {1, 2, 3, 4}),
        (qrandint(-4, 2, 2), {-4, -2, 0, 2}),
        (qlograndint(2, 8, 2), {2, 4, 6, 8}),
        (quniform(0, 1, 0.25), {0, 0.25, 0.5, 0.75, 1}),
        (choice([1, "a", None]), {1, "a", None}),
    ],
)
def test_every_value_of_a_discrete_domain_is_sampled(domain: Domain, expected: set[object]) -> None:
    assert set(domain.sample(size=400, random_state=0)) == expected


def test_quantized_uniform_values_are_equally_likely() -> None:
    values, counts = np.unique(quniform(0, 1, 0.25).sample(size=20_000, random_state=0), return_counts=True)
    assert len(values) == 5
    assert counts.max() / counts.min() < 1.1


@pytest.mark.parametrize("domain", [domain for domain, _, _ in BOUNDED.values()])
def test_a_single_sample_has_the_type_of_the_domain(domain: Domain) -> None:
    assert type(domain.sample()) is (int if isinstance(domain, Integer) else float)


def test_a_choice_keeps_the_types_of_its_values() -> None:
    values = choice([1.0, "text", 2]).sample(size=100, random_state=0)
    assert {type(value) for value in values} == {float, str, int}


@given(seed=st.integers(0, 2**32 - 1))
def test_a_seed_fixes_the_samples(seed: int) -> None:
    for domain, _, _ in BOUNDED.values():
        assert domain.sample(random_state=seed) == domain.sample(random_state=np.random.default_rng(seed))


def test_without_a_seed_the_global_state_of_numpy_is_used() -> None:
    np.random.seed(1000)
    first = [uniform(0, 1).sample(), randint(0, 10**6).sample()]
    np.random.seed(1000)
    assert [uniform(0, 1).sample(), randint(0, 10**6).sample()] == first
    np.random.seed(1000)
    legacy = np.random.RandomState(1000)
    assert uniform(0, 1).sample() == uniform(0, 1).sample(random_state=legacy)


@given(lower=st.floats(-1e6, 1e6), width=st.floats(0, 1e6), level=st.floats(0, 1, exclude_max=True))
def test_uniform_quantiles_lie_within_the_bounds(lower: float, width: float, level: float) -> None:
    domain = uniform(lower, lower + width)
    assert domain.is_valid(domain.get_sampler().quantile(domain, np.array([level]))[0])


@given(
    first=st.integers(-50, 50),
    steps=st.integers(0, 50),
    q=st.sampled_from([0.1, 0.2, 0.25, 1e-3, 3, 7]),
    level=st.floats(0, 1, exclude_max=True),
)
def test_quantized_values_are_multiples_within_the_bounds(
    first: int, steps: int, q: float, level: float
) -> None:
    domain = quniform(first * q, (first + steps) * q, q)
    (value,) = domain.get_sampler().quantile(domain, np.array([level]))
    assert domain.is_valid(value)
    assert math.isclose(value / q, round(value / q), abs_tol=1e-6)


def test_normal_samples_have_the_mean_and_the_standard_deviation() -> None:
    values = randn(10, 2).sample(size=5000, random_state=0)
    assert abs(np.mean(values) - 10) < 0.1
    assert abs(np.std(values) - 2) < 0.1
    rounded = qrandn(10, 2, 0.5).sample(size=100, random_state=0)
    assert all(value * 2 == round(value * 2) for value in rounded)


def test_functions_of_no_or_one_argument_are_called() -> None:
    def pair(config: object, other: str) -> int:
        return 3

    assert sample_from(lambda: 1).sample() == 1
    assert sample_from(lambda config: config).sample({"x": 2}) == {"x": 2}
    assert sample_from(lambda config, other="ok": other).sample() == "ok"
    assert sample_from(functools.partial(pair, other="ok")).sample(size=2) == [3, 3]
    with pytest.raises(ValueError, match="no or one argument"):
        sample_from(pair)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform(2, 1), "greater than the upper bound"),
        (lambda: Float(None, 1).uniform(), "finite bounds"),
        (lambda: Float(None, 1).sample(), "finite bounds"),
        (lambda: loguniform(0, 1), "positive finite bounds"),
        (lambda: lograndint(-1, 5), "positive finite bounds"),
        (lambda: Float(0, 1).normal().uniform(), "already has the sampler"),
        (lambda: quniform(0, 32, 3), "not a multiple of the quantization 3"),
        (lambda: Float(1e-4, 1e-1).quantized(5e-4), "not a multiple"),
        (lambda: qrandint(1, 2, 5), "No multiple of the quantization 5"),
        (lambda: quniform(0, 1, 0), "must be positive"),
        (lambda: randn(0, 0), "must be positive"),
        (lambda: choice([]), "at least one value"),
        (lambda: randint(3, 3).sample(), "upper bound is exclusive"),
    ],
)
def test_wrong_values_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def test_bounds_must_be_numbers() -> None:
    with pytest.raises(TypeError, match="lower bound of Float must be a number, got '1'"):
        uniform("1", 2)  # type: ignore[arg-type]


def test_the_argument_base_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="no effect"):
        loguniform(1, 2, base=10)


def test_samplers_can_be_inspected() -> None:
    sampler = qrandn(1, 2, 0.5).get_sampler()
    assert isinstance(sampler, Quantized)
    assert isinstance(sampler.get_sampler(), Normal)
    assert (sampler.sampler.mean, sampler.sampler.sd, sampler.q) == (1, 2, 0.5)  # type: ignore[attr-defined]
    assert Categorical([1, 2]).grid().is_grid()
    assert Function(lambda: 1).is_function()
    assert repr(uniform(0, 1)) == "Float((0, 1), Uniform)"


def test_domains_differ_in_the_classes_of_their_samplers() -> None:
    assert isinstance(randint(1, 9).sampler, Integer._Uniform)
    assert isinstance(lograndint(1, 9).sampler, Integer._LogUniform)
    assert isinstance(uniform(0, 1).sampler, Float._Uniform)
    assert isinstance(loguniform(1, 2).sampler, Float._LogUniform)
    assert isinstance(randn().sampler, Float._Normal)
    assert isinstance(choice("ab").sampler, Categorical.default_sampler_cls)
    assert not isinstance(uniform(0, 1).sampler, Integer.default_sampler_cls)
    assert not isinstance(choice("ab").sampler, Integer.default_sampler_cls | Float.default_sampler_cls)
    assert [str(domain.sampler) for domain in (randint(1, 9), loguniform(1, 2), randn())] == [
        "Uniform",
        "LogUniform",
        "Normal",
    ]


@pytest.mark.parametrize(
    ("domain", "kind"), [(uniform(0, 1), float), (randint(1, 9), int), (choice("ab"), Any)], ids=str
)
def test_the_signature_of_is_valid_has_the_type_of_the_values(domain: Domain, kind: object) -> None:
    assert inspect.signature(domain.is_valid).parameters["value"].annotation is kind


@pytest.mark.parametrize("state", [7, np.random.default_rng(7), np.random.RandomState(7), None], ids=repr)
def test_any_random_state_has_the_methods_of_a_generator(state: RandomState) -> None:
    random = cloudpickle.loads(cloudpickle.dumps(_BackwardsCompatibleNumpyRng(state)))
    assert 2 <= random.integers(2, 5) < 5
    assert random.random(3).shape == (3,)
    assert 0 <= uniform(0, 1).sample(random_state=random) < 1
    assert random.legacy_rng == (state is None or isinstance(state, np.random.RandomState))


def test_domains_survive_pickling() -> None:
    for domain, _, _ in BOUNDED.values():
        loaded = cloudpickle.loads(cloudpickle.dumps(domain))
        assert loaded.sample(random_state=1) == domain.sample(random_state=1)
