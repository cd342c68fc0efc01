"""Preprocessors one after the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skate.data import Dataset
from skate.data.preprocessor import Preprocessor, PreprocessorNotFittedException
from skate.data.preprocessors import Chain, Concatenator, LabelEncoder, SimpleImputer, StandardScaler
from tests.data.preprocessors.support import dataset

Status = Preprocessor.FitStatus


def rows() -> Dataset:
    return dataset(2, a=[-1, -1, 1, 1], b=[1, 1, 1, None], c=["s", "m", "t", "t"])


@pytest.mark.parametrize("nested", [False, True])
def test_each_is_fitted_to_what_the_ones_before_make(nested: bool) -> None:
    scaler, imputer, encoder = StandardScaler(["a", "b"]), SimpleImputer(["b"]), LabelEncoder("c")
    chain = Chain(Chain(scaler, imputer), encoder) if nested else Chain(scaler, imputer, encoder)
    assert chain.fit(rows()) is chain
    assert scaler.stats_ == {"mean(a)": 0.0, "mean(b)": 1.0, "std(a)": 1.0, "std(b)": 0.0}
    assert imputer.stats_ == {"mean(b)": 0.0}
    assert encoder.stats_ == {"unique_values(c)": {"m": 0, "s": 1, "t": 2}}
    expected = [{"a": a, "b": 0.0, "c": c} for a, c in [(-1.0, 1), (-1.0, 0), (1.0, 2), (1.0, 2)]]
    assert chain.transform(rows()).take_all() == expected


def test_fit_transform_does_both() -> None:
    chain = Chain(SimpleImputer(["b"]), StandardScaler(["a"]))
    assert [row["b"] for row in chain.fit_transform(rows()).take_all()] == [1.0] * 4
    assert chain.fit_status() is Status.FITTED


def test_a_batch_goes_through_all() -> None:
    chain = Chain(SimpleImputer(["b"]), Concatenator(["a", "b"])).fit(rows())
    found = chain.transform_batch(pd.DataFrame({"a": [5.0], "b": [np.nan]}))
    assert found["concat_out"].iloc[0].tolist() == [5.0, 1.0]


class TestStatus:
    def test_of_those_that_need_no_fitting(self) -> None:
        assert Chain(Concatenator(["a"])).fit_status() is Status.NOT_FITTABLE
        assert Chain().fit_status() is Status.NOT_FITTABLE

    def test_is_partial_while_one_is_not_fitted(self) -> None:
        chain = Chain(Chain(SimpleImputer(["b"]), Concatenator(["a"])), StandardScaler(["a"]))
        assert chain.fit_status() is Status.NOT_FITTED
        chain.preprocessors[0].fit(rows())
        assert chain.fit_status() is Status.PARTIALLY_FITTED
        with pytest.raises(PreprocessorNotFittedException, match="Chain"):
            chain.transform(rows())
        chain.preprocessors[1].fit(rows())
        assert chain.fit_status() is Status.FITTED

    def test_fitting_a_chain_again_warns_once(self) -> None:
        chain = Chain(SimpleImputer(["b"]), StandardScaler(["a"])).fit(rows())
        with pytest.warns(UserWarning, match=r"^Chain\(.*was already fitted") as caught:
            chain.fit(rows())
        assert len(caught) == 1


def test_a_saved_chain_does_the_same() -> None:
    chain = Chain(SimpleImputer(["b"]), StandardScaler(["a"])).fit(rows())
    loaded = Chain.deserialize(chain.serialize())
    assert repr(loaded) == repr(chain)
    batch = pd.DataFrame({"a": [3.0], "b": [np.nan]})
    pd.testing.assert_frame_equal(loaded.transform_batch(batch), chain.transform_batch(batch))
