"""Saving preprocessors, and loading those of other versions."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import pandas as pd
import pyarrow as pa
import pytest

from skate.data.constants import MAX_REPR_LENGTH
from skate.data.preprocessor import SerializablePreprocessorBase
from skate.data.preprocessors import (
    Categorizer,
    Chain,
    Concatenator,
    CountVectorizer,
    CustomKBinsDiscretizer,
    FeatureHasher,
    HashingVectorizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    TorchVisionPreprocessor,
    UniformKBinsDiscretizer,
    __all__,
)
from skate.data.preprocessors.version_support import SerializablePreprocessor, UnknownPreprocessorError

ALL: list[SerializablePreprocessorBase] = [
    Categorizer(["x"]),
    Chain(StandardScaler(["x"]), MinMaxScaler(["x"])),
    Concatenator(["x"]),
    CountVectorizer(["x"]),
    CustomKBinsDiscretizer(["x"], bins=[0, 1]),
    FeatureHasher(["x"], num_features=1, output_column="y"),
    HashingVectorizer(["x"], num_features=1),
    LabelEncoder("x"),
    MaxAbsScaler(["x"]),
    MinMaxScaler(["x"]),
    MultiHotEncoder(["x"]),
    Normalizer(["x"]),
    OneHotEncoder(["x"]),
    OrdinalEncoder(["x"]),
    PowerTransformer(["x"], power=1),
    RobustScaler(["x"]),
    SimpleImputer(["x"]),
    StandardScaler(["x"]),
    Tokenizer(["x"]),
    TorchVisionPreprocessor(["x"], transform=len),
    UniformKBinsDiscretizer(["x"], bins=2),
]
each_one = pytest.mark.parametrize("made", ALL, ids=lambda made: type(made).__name__)


def test_none_is_left_out_here() -> None:
    assert [type(made).__name__ for made in ALL] == __all__


@each_one
def test_the_text_of_one_says_what_it_was_made_with(made: Any) -> None:
    assert repr(made).startswith(f"{type(made).__name__}(")
    assert "'x'" in repr(made)


@pytest.mark.parametrize("made", [made for made in ALL if "Bins" not in repr(made)], ids=repr)
def test_the_text_of_one_with_few_options_fits_in_a_line(made: Any) -> None:
    assert len(repr(made)) < MAX_REPR_LENGTH


@each_one
def test_one_comes_back_as_it_was_saved(made: Any) -> None:
    saved = made.serialize()
    assert saved.startswith(SerializablePreprocessorBase.MAGIC_CLOUDPICKLE)
    for loaded in (SerializablePreprocessorBase.deserialize(saved), pickle.loads(pickle.dumps(made))):
        assert type(loaded) is type(made)
        assert repr(loaded) == repr(made)
        assert loaded.fit_status() is made.fit_status()


@each_one
def test_a_state_with_options_under_public_names_is_understood(made: Any) -> None:
    state = {name.removeprefix("_"): value for name, value in vars(made).items()}
    loaded = type(made).__new__(type(made))
    loaded.__setstate__(state)
    assert repr(loaded) == repr(made)


def test_an_option_that_was_not_saved_has_its_default() -> None:
    loaded = Normalizer.__new__(Normalizer)
    loaded.__setstate__({"columns": ["a"]})
    assert (loaded.norm, loaded.output_columns) == ("l2", ["a"])
    with pytest.raises(AttributeError, match="Normalizer was created without 'columns'"):
        _ = Normalizer.__new__(Normalizer).columns


def test_statistics_of_any_kind_are_saved() -> None:
    made = SimpleImputer(["x"])
    made.stats_ = {"mean(x)": None, "odd": {("a", 1): float("inf"), frozenset([1]): None, None: [1]}}
    assert SimpleImputer.deserialize(made.serialize()).stats_ == made.stats_


class TestWhatRaySaved:
    def saved(self, kind: str, fields: dict[str, Any], stats: dict[str, Any]) -> bytes:
        saved = {
            "type": f"io.ray.preprocessors.{kind}",
            "version": 1,
            "fields": fields,
            "stats": stats,
            "serializer_format_version": 1,
        }
        return b"CPKL:" + bytes(cloudpickle.dumps(saved))

    def test_numbers_of_values_as_two_arrays(self) -> None:
        fields = {"columns": ["x"], "output_columns": ["x"], "encode_lists": True, "_fitted": True}
        stats = {"unique_values(x)": (pa.array(["a", "b"]), pa.array([0, 1]))}
        loaded = SerializablePreprocessorBase.deserialize(self.saved("ordinal_encoder", fields, stats))
        assert loaded.transform_batch(pd.DataFrame({"x": ["b", "a"]}))["x"].tolist() == [1, 0]

    def test_categories_by_their_parts(self) -> None:
        dtypes = {"x": {"categories": ["b", "a"], "ordered": True}}
        fields = {"columns": ["x"], "output_columns": ["x"], "_fitted": False, "dtypes": dtypes}
        loaded = SerializablePreprocessorBase.deserialize(self.saved("categorizer", fields, {}))
        assert isinstance(loaded, Categorizer)
        assert loaded.dtypes == {"x": pd.CategoricalDtype(["b", "a"], ordered=True)}


class TestErrors:
    def test_bytes_that_are_no_preprocessor(self) -> None:
        with pytest.raises(ValueError, match="start with b'PAR1'"):
            SerializablePreprocessorBase.deserialize(b"PAR1")

    def test_a_class_that_is_not_known(self) -> None:
        saved = b"CPKL:" + cloudpickle.dumps({"type": "my.Own", "version": 1, "fields": {}, "stats": {}})
        with pytest.raises(UnknownPreprocessorError, match=r"Unknown preprocessor type: my\.Own") as caught:
            SerializablePreprocessorBase.deserialize(saved)
        assert pickle.loads(pickle.dumps(caught.value)).preprocessor_type == "my.Own"

    def test_a_name_that_is_taken(self) -> None:
        with pytest.raises(ValueError, match="is already the name of StandardScaler"):

            @SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.standard_scaler")
            class Other(SerializablePreprocessorBase):
                pass


@SerializablePreprocessor(version=2, identifier="tests.shifted")
class Shifted(SerializablePreprocessorBase):
    """A class of a user, whose first version called `by` something else."""

    _is_fittable = False

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def _get_serializable_fields(self) -> dict[str, Any]:
        return {"by": self.by}

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        self.by = fields["by" if version == 2 else "offset"]


def test_a_subclass_is_not_loaded_as_what_it_inherits_from() -> None:
    class Own(StandardScaler):
        pass

    with pytest.raises(UnknownPreprocessorError, match="Own"):
        SerializablePreprocessorBase.deserialize(Own(["x"]).serialize())


def test_a_class_of_the_users_can_load_what_its_first_version_saved() -> None:
    first = {"type": "tests.shifted", "version": 1, "fields": {"offset": 3}, "stats": {}}
    for saved in (b"CPKL:" + cloudpickle.dumps(first), Shifted(3).serialize()):
        loaded = SerializablePreprocessorBase.deserialize(saved)
        assert isinstance(loaded, Shifted)
        assert loaded.by == 3
