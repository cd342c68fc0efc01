"""Mistakes in calls of datasets, and of the classes that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import skate.data as data
from skate.data import (
    DataContext,
    ExecutionResources,
)
from skate.data import expressions as ex
from skate.data import preprocessors as pre
from tests.misuse import data_files, data_transforms
from tests.misuse.data_support import (
    finished,
    identity,
    of_dataset,
    rows,
)
from tests.misuse.support import Mistake, mistakes


def in_a_session() -> Iterator[Mistake]:
    """Yield mistakes that are made in a session, each of them once."""
    yield from {mistake.id: mistake for mistake in all_mistakes()}.values()


def all_mistakes() -> Iterator[Mistake]:
    """Yield all mistakes; the sections make some of them twice."""
    yield from data_files.sources()
    yield from data_files.readers()
    yield from data_transforms.functions()
    yield from data_transforms.functions_that_fail()
    yield from data_transforms.projections()
    yield from consumption()
    yield from data_transforms.relations()
    yield from data_transforms.splits()
    yield from data_transforms.aggregations()
    yield from iteration()
    yield from conversions()
    yield from data_files.writers()
    yield from expressions()
    yield from preprocessors()
    yield from settings()


def consumption() -> Iterator[Mistake]:
    """Yield mistakes in methods that return rows."""
    yield from of_dataset("take", wrong={"limit": [None]})
    yield from of_dataset("take_all", wrong={"limit": [2]})
    yield from of_dataset("take_batch", wrong={"batch_size": [0, None], "batch_format": ["arow"]})
    yield from of_dataset("show", wrong={"limit": [None]})
    yield from of_dataset("limit", wrong={"limit": [None]})
    yield from of_dataset("to_pandas", wrong={"limit": [2]})
    yield from of_dataset("schema", wrong={"fetch_if_missing": ["no"]})
    yield from of_dataset("columns", wrong={"fetch_if_missing": ["no"]})
    yield from of_dataset("unique", wrong={"column": ["ids", None, ["id"]]})
    yield from of_dataset("summary", wrong={"columns": [["ids"], "id", []]})
    yield from of_dataset("deserialize_lineage", wrong={"serialized_ds": [b"abc", "abc"]})
    yield Mistake("ds.take_batch", "an empty dataset", lambda: data.from_items([]).take_batch(), ("empty",))
    yield Mistake(
        "ds.num_blocks", "before it is materialized", lambda: data.range(3).num_blocks(), ("materialize",)
    )
    yield Mistake("len(ds)", "ds", lambda: len(rows()), ("count",))
    yield Mistake("iter(ds)", "ds", lambda: iter(rows()), ("iter_rows",))
    yield Mistake("iter(ds.iterator())", "it", lambda: iter(rows().iterator()), ("iter_rows",))
    yield Mistake(
        "ds.serialize_lineage", "rows of this program", lambda: rows().serialize_lineage(), ("files",)
    )


def iteration() -> Iterator[Mistake]:
    """Yield mistakes in methods that iterate."""
    sizes = {"batch_size": [0], "local_shuffle_buffer_size": [0]}
    yield from of_dataset(
        "iter_batches",
        wrong={**sizes, "batch_format": ["arow"], "drop_last": ["no"]},
        finish=list,
        valid={"local_shuffle_seed": [-7]},
    )
    yield from of_dataset(
        "iter_torch_batches",
        wrong={**sizes, "dtypes": ["float", 3], "device": ["gpu0", 3], "collate_fn": [3]},
        valid={"local_shuffle_seed": [-7]},
        correct=dict,
        finish=list,
    )
    yield Mistake(
        "ds.iter_torch_batches", "a column of text", lambda: list(rows().iter_torch_batches()), ("name",)
    )
    yield from of_dataset(
        "to_torch",
        wrong={"label_column": ["ids"], "feature_columns": [3, ["ids"], "ids"]},
        correct=lambda: {"label_column": "id", "feature_columns": ["id"]},
        valid={"local_shuffle_seed": [-7]},
        finish=list,
    )
    yield from of_dataset(
        "to_tf",
        wrong={"feature_columns": [[3], None], "label_columns": [None]},
        correct=lambda: {"feature_columns": "id", "label_columns": "id"},
        valid={"local_shuffle_seed": [-7]},
    )
    yield from of_dataset("iter_tf_batches", valid={"local_shuffle_seed": [-7]})
    yield from of_dataset("iter_jax_batches", valid={"local_shuffle_seed": [-7]})
    yield Mistake(
        "ds.iter_rows",
        "prefetch_batches=1",
        lambda: rows().iter_rows(prefetch_batches=1),
        ("prefetch_batches",),
    )


def conversions() -> Iterator[Mistake]:
    """Yield mistakes in methods that hand rows to other libraries."""
    yield from of_dataset("to_numpy_refs", wrong={"column": ["ids"]})
    yield from of_dataset(
        "to_random_access_dataset",
        wrong={"key": ["ids", None], "num_workers": [0]},
        correct=lambda: {"key": "id"},
    )
    yield from of_dataset("to_spark", wrong={"spark": [3]})


def expressions() -> Iterator[Mistake]:
    """Yield mistakes in expressions."""
    yield from mistakes("col", ex.col, wrong={"name": [None]})
    yield from mistakes(
        "download", ex.download, correct=lambda: {"uri_column_name": "a"}, wrong={"filesystem": ["s3"]}
    )
    yield from mistakes("random", ex.random, valid={"seed": [-7]})
    yield from mistakes("unnest", ex.unnest, wrong={"expr": [3, "a"]})
    yield from mistakes("udf", ex.udf, wrong={"return_dtype": [3, "int64", int]})
    yield Mistake(
        "udf", "a call with a value of the wrong kind", lambda: ex.udf(ex.DataType.int64())(3), ("3",)
    )
    column = ex.col("a")
    yield from mistakes("col(…).alias", column.alias)
    yield from mistakes("col(…).cast", column.cast, wrong={"target_type": ["int"]})
    yield from mistakes("col(…).is_in", column.is_in, wrong={"values": [3]})
    yield Mistake("col(…)", "a truth value", lambda: bool(column > 1), ("and", "&"))
    for name, method, correct in (
        ("str.pad", column.str.pad, {"width": 3}),
        ("str.starts_with", column.str.starts_with, {}),
        ("str.replace", column.str.replace, {"pattern": "a", "replacement": "b"}),
        ("str.repeat", column.str.repeat, {}),
        ("list.sort", column.list.sort, {}),
        ("list.get", column.list.get, {}),
        ("dt.strftime", column.dt.strftime, {}),
        ("struct.field", column.struct.field, {}),
    ):
        yield from mistakes(
            f"col(…).{name}",
            method,
            correct=lambda correct=correct: correct,  # type: ignore[misc]
            valid={"index": [-7], "width": [-7], "n": [-7]},
        )
    yield from mistakes("col(…).dt.round", column.dt.round, wrong={"unit": ["weak"]})
    yield Mistake(
        "ds.with_column",
        "text plus a number",
        lambda: finished(rows().with_column("a", ex.col("name") + 1)),
        ("name", "string"),
    )
    yield Mistake(
        "ds.filter",
        "expr is not a condition",
        lambda: finished(rows().filter(expr=ex.col("id") + 1)),
        ("int64", "bool"),
    )


def preprocessors() -> Iterator[Mistake]:
    """Yield mistakes in preprocessors."""
    required: dict[str, dict[str, Any]] = {
        "FeatureHasher": {"num_features": 4, "output_column": "o"},
        "HashingVectorizer": {"num_features": 4},
        "CustomKBinsDiscretizer": {"bins": [0, 1, 2]},
        "UniformKBinsDiscretizer": {"bins": 2},
        "PowerTransformer": {"power": 2},
        "LabelEncoder": {"label_column": "id"},
        "TorchVisionPreprocessor": {"transform": identity},
    }
    more: dict[str, dict[str, list[Any]]] = {
        "UniformKBinsDiscretizer": {"bins": ["a", 0, -1, 1.5], "duplicates": ["keep"]},
        "CustomKBinsDiscretizer": {"bins": ["a", 3], "duplicates": ["keep"]},
        "Normalizer": {"norm": ["l3"]},
        "PowerTransformer": {"method": ["box"]},
        "SimpleImputer": {"strategy": ["average"]},
        "RobustScaler": {"quantile_range": [3, (0.75, 0.25), (0, 2), ("a", "b")]},
        "OneHotEncoder": {"max_categories": [{"id": 0}, {"id": "a"}]},
        "Concatenator": {"dtype": ["flot"]},
        "Categorizer": {"dtypes": [{"id": "int"}]},
        "FeatureHasher": {"num_features": [0]},
        "HashingVectorizer": {"num_features": [0]},
        "CountVectorizer": {"max_features": [0]},
    }
    valid = {"PowerTransformer": {"power": [-7]}}
    for name in pre.__all__:
        if name == "Chain":
            continue
        arguments = {} if name == "LabelEncoder" else {"columns": ["id"]}
        arguments |= required.get(name, {})
        wrong = dict(more.get(name, {}))
        if name != "LabelEncoder":
            wrong["columns"] = ["id", [3]]
        if "output_columns" in pre.__dict__[name].__init__.__annotations__:
            wrong["output_columns"] = ["id", ["a", "b"]]
        yield from mistakes(
            name,
            getattr(pre, name),
            correct=lambda arguments=arguments: arguments,  # type: ignore[misc]
            wrong=wrong,
            valid=valid.get(name),
        )
        arguments = {**arguments, "columns": ["ids"]} if name != "LabelEncoder" else {"label_column": "ids"}
        yield Mistake(
            f"{name}.fit_transform",
            "an absent column",
            lambda n=name, a=arguments: finished(getattr(pre, n)(**a).fit_transform(rows())),  # type: ignore[misc]
            ("ids",),
        )
    yield Mistake(
        "StandardScaler.fit", "a column of text", lambda: pre.StandardScaler(["name"]).fit(rows()), ("name",)
    )
    yield Mistake(
        "StandardScaler.transform",
        "before fit",
        lambda: pre.StandardScaler(["id"]).transform(rows()),
        ("fit",),
    )
    yield Mistake("StandardScaler.fit", "ds=3", lambda: pre.StandardScaler(["id"]).fit(3), ("ds",))  # type: ignore[arg-type]
    yield Mistake("Concatenator.transform", "ds=3", lambda: pre.Concatenator(["id"]).transform(3), ("ds",))  # type: ignore[arg-type]
    yield Mistake(
        "StandardScaler.transform_batch", "data=3", lambda: fitted().transform_batch(3), ("int", "3")
    )
    yield Mistake("Chain", "3", lambda: pre.Chain(3), ("3",))  # type: ignore[arg-type]
    yield Mistake("Chain", "a class", lambda: pre.Chain(pre.StandardScaler), ("StandardScaler",))  # type: ignore[arg-type]
    yield from mistakes(
        "StandardScaler.transform",
        pre.StandardScaler.transform,
        lambda: fitted().transform,
        correct=lambda: {"ds": rows()},
        wrong={"batch_size": [0]},
    )


def fitted() -> Any:
    """Return a preprocessor that is fitted."""
    return pre.StandardScaler(["id"]).fit(rows())


def settings() -> Iterator[Mistake]:
    """Yield mistakes in settings."""

    def context() -> Callable[..., Any]:
        made = DataContext.get_current().copy()

        def set_attributes(**attributes: Any) -> None:
            for name, value in attributes.items():
                setattr(made, name, value)

        return set_attributes

    yield from mistakes(
        "DataContext",
        DataContext,
        context,
        wrong={
            "execution_options": [3, {"preserve_order": True}],
            "max_errored_blocks": [-2],
            "checkpoint_config": [3, {"id_colum": "id"}],
            "enable_progress_bars": ["no"],
            "actor_task_retry_on_errors": ["all"],
        },
        options="target_max_blok_size",
    )
    yield from mistakes("ExecutionResources", ExecutionResources, options="cpus")
    yield from mistakes(
        "ExecutionOptions",
        data.ExecutionOptions,
        wrong={"resource_limits": [3, {"cpu": 1}], "preserve_order": ["no"]},
        options="preserve_orders",
    )

    def options() -> Callable[..., Any]:
        made = data.ExecutionOptions()

        def set_attributes(**attributes: Any) -> None:
            for name, value in attributes.items():
                setattr(made, name, value)

        return set_attributes

    yield from mistakes(
        "ExecutionOptions.",
        {},
        options,
        wrong={"resource_limits": [3], "preserve_order": ["no"], "locality_with_output": [3]},
        options="preserve_orders",
    )
