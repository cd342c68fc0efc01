from __future__ import annotations

import pytest

from skate.data.datasource import Partitioning, PartitionStyle, PathPartitionFilter, PathPartitionParser
from skate.data.expressions import col


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("base/year=2024/country=fr/x.csv", {"year": "2024", "country": "fr"}),
        ("base/sub/year=2024/x.csv", {"year": "2024"}),
        ("base/x=1.csv", {}),
        ("elsewhere/year=2024/x.csv", {}),
        ("base/key=a%2Fb/x.csv", {"key": "a/b"}),
        ("base/key=a+b/x.csv", {"key": "a+b"}),
        ("base/key=a=b/x.csv", {"key": "a=b"}),
        ("base/key=__HIVE_DEFAULT_PARTITION__/x.csv", {"key": None}),
    ],
)
def test_hive_folders_give_keys_and_values(path: str, expected: dict[str, str]) -> None:
    assert PathPartitionParser.of(base_dir="base")(path) == expected


def test_folders_without_keys_take_the_names_that_are_given() -> None:
    parse = PathPartitionParser.of("dir", field_names=["year", None, "country"])  # type: ignore[arg-type]
    assert parse("1970/any/fr/x.csv") == {"year": "1970", "country": "fr"}


@pytest.mark.parametrize(("text", "type_"), [("1", int), ("1.5", float), ("a", str), ("true", bool)])
def test_values_get_the_types_that_are_given(text: str, type_: type) -> None:
    value = PathPartitionParser.of(field_types={"key": type_})(f"key={text}/x.csv")["key"]
    assert type(value) is type_


def test_a_value_that_does_not_fit_its_type_is_an_error_that_names_both() -> None:
    with pytest.raises(ValueError, match=r"year=abc.*int"):
        PathPartitionParser.of(field_types={"year": int})("year=abc/x.csv")


@pytest.mark.parametrize("path", ["1/x.csv", "1/2/3/x.csv"])
def test_the_wrong_number_of_folders_is_an_error(path: str) -> None:
    parse = PathPartitionParser.of(PartitionStyle.DIRECTORY, field_names=["a", "b"])
    with pytest.raises(ValueError, match=r"\['a', 'b'\]"):
        parse(path)


def test_other_keys_than_the_partitioning_names_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"bar"):
        PathPartitionParser.of(field_names=["foo"])("bar=1/x.csv")


def test_folders_without_keys_need_names() -> None:
    with pytest.raises(ValueError, match=r"field_names"):
        PathPartitionParser.of(PartitionStyle.DIRECTORY)


def test_an_unknown_style_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"hive"):
        Partitioning("hives")


def test_a_filter_chooses_paths_by_their_values() -> None:
    chosen = PathPartitionFilter.of(lambda values: values.get("year") == "2024")
    assert chosen(["year=2023/a", "year=2024/b", "c"]) == ["year=2024/b"]


def test_a_predicate_is_evaluated_on_partition_values() -> None:
    parse = PathPartitionParser.of(field_types={"year": int})
    assert parse.evaluate_predicate_on_partition("year=2024/x", col("year") > 2020)
    assert not parse.evaluate_predicate_on_partition("year=2019/x", col("year") > 2020)
    assert not parse.evaluate_predicate_on_partition("x", col("year") > 2020)


def test_a_base_folder_may_be_relative_while_files_are_absolute(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    parse = PathPartitionParser.of("dir", base_dir="data", field_names=["year"])  # type: ignore[arg-type]
    assert parse(f"{tmp_path}/data/2024/x.csv") == {"year": "2024"}
