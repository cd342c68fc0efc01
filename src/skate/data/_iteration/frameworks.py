"""Adapters for other frameworks: TensorFlow tensors and datasets, JAX arrays, and torch datasets."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from skate.air._optional import load
from skate.data._arguments import NON_NEGATIVE, POSITIVE, check_type, checked
from skate.data._block import tensors
from skate.data._block.kinds import is_list, is_text
from skate.data._iteration import torch_tensors
from skate.data._schema import Schema
from skate.data.collate_fn import ArrowBatchCollateFn, PandasBatchCollateFn
from skate.util.annotations import RayDeprecationWarning

Columns = str | list[str]


class FrameworkMethods(abc.ABC):
    """Methods of `Dataset` and `DataIterator` that return batches of other frameworks."""

    @abc.abstractmethod
    def schema(self) -> Schema | None:
        """Return the schema."""

    def _batches(self, **options: Any) -> Iterable[Any]:
        return self.iter_batches(**options)  # type: ignore[attr-defined,no-any-return]  # of `IterationMethods`

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def iter_tf_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Return an iterable over batches of TensorFlow tensors, with the arguments of `iter_torch_batches`."""
        tensorflow = load("tensorflow", "iter_tf_batches")

        def make(batch: dict[str, Any]) -> dict[str, Any]:
            return {
                name: _tf_tensor(tensorflow, values, _for_column(dtypes, name))
                for name, values in batch.items()
            }

        return self._batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=make,
        )

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def to_tf(
        self,
        feature_columns: Columns,
        label_columns: Columns,
        *,
        additional_columns: Columns | None = None,
        prefetch_batches: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        feature_type_spec: Any = None,
        label_type_spec: Any = None,
        additional_type_spec: Any = None,
    ) -> Any:
        """Return a `tf.data.Dataset` of features and labels, as Keras expects it.

        Args:
            feature_columns: A column for one tensor, or a list of columns for a dict of tensors.
            label_columns: The same, for the labels.
            additional_columns: Further columns, as a third part of each element.
            prefetch_batches: Number of batches that a thread prefetches.
            batch_size: Number of rows of a batch.
            drop_last: Drop an incomplete last batch.
            local_shuffle_buffer_size: Draw each batch at random from a buffer of at least this many rows.
            local_shuffle_seed: The seed of the local shuffle.
            feature_type_spec: A `tf.TypeSpec`, or a dict of them by column; inferred if not given.
            label_type_spec: The same, for the labels.
            additional_type_spec: The same, for further columns.
        """
        tensorflow = load("tensorflow", "to_tf")
        parts = [(feature_columns, feature_type_spec), (label_columns, label_type_spec)]
        if additional_columns is not None:
            parts.append((additional_columns, additional_type_spec))
        schema = self.schema()
        specs = tuple(
            _type_spec(tensorflow, schema, columns) if spec is None else spec for columns, spec in parts
        )

        def tensor(values: np.ndarray[Any, Any], spec: Any) -> Any:
            ragged = isinstance(spec, tensorflow.RaggedTensorSpec)
            return _tf_tensor(tensorflow, values, spec.dtype, ragged)

        def elements() -> Iterator[tuple[Any, ...]]:
            for batch in self._batches(
                prefetch_batches=prefetch_batches,
                batch_size=batch_size,
                drop_last=drop_last,
                local_shuffle_buffer_size=local_shuffle_buffer_size,
                local_shuffle_seed=local_shuffle_seed,
            ):
                yield tuple(
                    tensor(batch[columns], spec)
                    if isinstance(columns, str)
                    else {name: tensor(batch[name], spec[name]) for name in columns}
                    for (columns, _), spec in zip(parts, specs, strict=True)
                )

        made = tensorflow.data.Dataset.from_generator(elements, output_signature=specs)
        # The rows are already divided between workers: TensorFlow must not divide them again.
        options = tensorflow.data.Options()
        options.experimental_distribute.auto_shard_policy = tensorflow.data.experimental.AutoShardPolicy.OFF
        return made.with_options(options)

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def iter_jax_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int = 256,
        dtypes: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        synchronize_batches: bool = False,
        paddings: Any = None,
    ) -> Iterable[Any]:
        """Return an iterable over batches of JAX arrays, sharded by rows across all local devices.

        Args:
            prefetch_batches: Number of batches that a thread prefetches.
            batch_size: Number of rows of a batch, a multiple of the number of local devices.
            dtypes: The type of all arrays, or a dict of types by column.
            collate_fn: Converts a batch to an array or a dict of arrays instead: a function of a dict of arrays, or a
                CollateFn.
            drop_last: Drop an incomplete last batch.
            local_shuffle_buffer_size: Draw each batch at random from a buffer of at least this many rows.
            local_shuffle_seed: The seed of the local shuffle.
            synchronize_batches: Accepted without effect: the processes of one machine iterate independently.
            paddings: Pad the last batch to `batch_size` with this value, or with a value by column. Otherwise a last
                batch that the devices cannot share evenly raises ValueError.
        """
        jax = load("jax", "iter_jax_batches")
        devices = jax.local_devices()
        if batch_size % len(devices):
            raise ValueError(
                f"batch_size ({batch_size}) must be divisible by the number of local devices, {len(devices)}"
            )
        if collate_fn is not None and dtypes is not None:
            raise ValueError(
                "collate_fn cannot be used with dtypes: convert the arrays in collate_fn instead"
            )
        mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
        across = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))

        def array(values: Any, name: str | None) -> Any:
            if paddings is not None and len(values) < batch_size:
                widths = [(0, batch_size - len(values)), *((0, 0) for _ in values.shape[1:])]
                values = np.pad(values, widths, constant_values=_for_column(paddings, name))
            if len(values) % len(devices):
                raise ValueError(
                    f"the last batch has {len(values)} rows, which {len(devices)} devices cannot share evenly: give "
                    "drop_last=True, or paddings"
                )
            dtype = _for_column(dtypes, name)
            return jax.device_put(values if dtype is None else values.astype(dtype), across)

        def make(batch: Any) -> Any:
            made = batch if collate_fn is None else collate_fn(batch)
            if isinstance(made, Mapping):
                return {name: array(values, name) for name, values in made.items()}
            return array(made, None)

        return self._batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format=_format_for(collate_fn),
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=make,
        )

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Any = None,
        label_column_dtype: Any = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
    ) -> Any:
        """Return a torch `IterableDataset` over pairs of features and label; `iter_torch_batches` has more options.

        Deprecated in Ray in favor of `iter_torch_batches`.

        Args:
            label_column: The column of the labels; with None, labels are None.
            feature_columns: A list of columns for one tensor, or lists or a dict of such lists for several tensors; all
                columns except the label by default.
            label_column_dtype: The type of the label tensor.
            feature_column_dtypes: The type of all features, or types in the structure of `feature_columns`.
            batch_size: Number of rows of a batch.
            prefetch_batches: Number of batches that a thread prefetches.
            drop_last: Drop an incomplete last batch.
            local_shuffle_buffer_size: Draw each batch at random from a buffer of at least this many rows.
            local_shuffle_seed: The seed of the local shuffle.
            unsqueeze_label_tensor: Add a second dimension of size 1 to the label.
            unsqueeze_feature_tensors: Add a second dimension to each feature column, and concatenate along it.
        """
        warnings.warn(
            "to_torch is deprecated in Ray: use iter_torch_batches", RayDeprecationWarning, stacklevel=3
        )
        torch = load("torch", "to_torch")
        features = feature_columns or None
        if features is not None:
            words = "a list of columns, a list of such lists or a dict of them"
            check_type("feature_columns", features, (list, tuple, Mapping), words)
        dtypes = feature_column_dtypes

        def tensor(batch: Any, columns: Sequence[str], dtype: Any, unsqueeze: bool) -> Any:
            if not columns:
                raise ValueError("to_torch needs columns for each tensor: one of the lists is empty")
            missing = [name for name in columns if name not in batch]
            if missing:
                raise ValueError(f"to_torch needs the columns {missing}; the dataset has {list(batch)}")
            each = [torch_tensors.to_tensor(batch[name], dtype, name) for name in columns]
            each = [one.unsqueeze(1) if unsqueeze else one for one in each]
            return each[0] if len(each) == 1 else torch.cat(each, dim=min(1, each[0].ndim - 1))

        def of_features(batch: Any) -> Any:
            chosen = features or [name for name in batch if name != label_column]
            unsqueeze = unsqueeze_feature_tensors
            if isinstance(chosen, Mapping):
                return {
                    key: tensor(batch, names, _for_column(dtypes, key), unsqueeze)
                    for key, names in chosen.items()
                }
            if isinstance(chosen[0], str):
                return tensor(batch, chosen, dtypes, unsqueeze)
            each = dtypes if isinstance(dtypes, (list, tuple)) else [dtypes] * len(chosen)
            return [tensor(batch, names, one, unsqueeze) for names, one in zip(chosen, each, strict=True)]

        def make(batch: Any) -> tuple[Any, Any]:
            label = None
            if label_column is not None:
                label = tensor(batch, [label_column], label_column_dtype, unsqueeze_label_tensor)
            return of_features(batch), label

        batches = self._batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=make,
        )

        class Pairs(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]  # torch is loaded here
            def __iter__(self) -> Iterator[Any]:
                return iter(batches)

        return Pairs()


def _for_column(values: Any, name: str | None) -> Any:
    """Return the value of a column, from one value for all columns or a dict by column."""
    return values.get(name) if isinstance(values, Mapping) else values


def _format_for(collate_fn: Any) -> str:
    if isinstance(collate_fn, ArrowBatchCollateFn):
        return "pyarrow"
    return "pandas" if isinstance(collate_fn, PandasBatchCollateFn) else "numpy"


def _tf_tensor(tensorflow: Any, values: np.ndarray[Any, Any], dtype: Any, ragged: bool | None = None) -> Any:
    """Return a column as a TensorFlow tensor.

    Args:
        tensorflow: The module.
        values: The column.
        dtype: The type of the tensor; None keeps the type of the values.
        ragged: Whether arrays of the column may differ in shape; None detects it.
    """
    if values.dtype != object and not ragged:  # a ragged column stays ragged in every batch
        made = tensorflow.convert_to_tensor(values)
        return made if dtype is None or made.dtype == dtype else tensorflow.cast(made, dtype)
    if values.dtype == object and not all(isinstance(each, np.ndarray) for each in values):
        return tensorflow.convert_to_tensor(list(values), dtype=dtype)
    if ragged is None:
        ragged = len({each.shape for each in values}) > 1
    if ragged:
        rows = [tensorflow.convert_to_tensor(each, dtype=dtype) for each in values]
        return tensorflow.ragged.stack(rows).with_row_splits_dtype(tensorflow.int64)
    return tensorflow.convert_to_tensor(np.stack(list(values)), dtype=dtype)


def _type_spec(tensorflow: Any, schema: Schema | None, columns: Columns) -> Any:
    """Return the TensorFlow type specification of columns."""
    if isinstance(columns, str):
        return _column_spec(tensorflow, schema, columns)
    return {name: _column_spec(tensorflow, schema, name) for name in columns}


def _column_spec(tensorflow: Any, schema: Schema | None, name: str) -> Any:
    there = [] if schema is None else schema.names
    if schema is None or name not in there:
        raise ValueError(f"to_tf got the column {name!r}, but the dataset has the columns {there}")
    kind = schema.base_schema.field(name).type
    shape: tuple[int | None, ...] = ()
    ragged = 0  # number of ragged dimensions
    if isinstance(kind, pa.FixedShapeTensorType):
        shape, kind = tuple(kind.shape), kind.value_type
    elif isinstance(kind, tensors.VariableShapedTensorType):
        ragged, kind = kind.ndim or 1, kind.value_type
    elif pa.types.is_fixed_size_list(kind):
        shape, kind = (kind.list_size,), kind.value_type
    elif is_list(kind):
        ragged, kind = 1, kind.value_type
    dtype = tensorflow.string if is_text(kind) else tensorflow.as_dtype(kind.to_pandas_dtype())
    if ragged:
        return tensorflow.RaggedTensorSpec((None,) * (1 + ragged), dtype, ragged_rank=ragged)
    return tensorflow.TensorSpec((None, *shape), dtype, name)
