"""Preprocessors: transformations that are fitted to a dataset and applied to datasets and batches."""

from __future__ import annotations

import abc
import base64
import enum
import pickle
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle
import numpy as np
import pyarrow as pa

from skate.data._arguments import POSITIVE, checked
from skate.data._block import batches, frames
from skate.data._preprocessors import options, registry
from skate.data._preprocessors.statistics import StatComputationPlan
from skate.data.constants import TENSOR_COLUMN_NAME
from skate.data.util.data_batch_conversion import BatchFormat

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["Preprocessor", "PreprocessorNotFittedException", "SerializablePreprocessorBase"]


class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor was used before it was fitted."""


class Preprocessor(abc.ABC):
    """A transformation of rows that may depend on statistics of a dataset.

    To write one, override `_fit`, which either sets `self.stats_` or requests aggregates with
    `self.stat_computation_plan`, and one of `_transform_pandas`, `_transform_numpy` and `_transform_arrow`. A
    preprocessor without statistics sets `_is_fittable = False` instead of overriding `_fit`.

    >>> import skate
    >>> from skate.data.aggregate import Max
    >>> class Share(Preprocessor):
    ...     def _fit(self, ds):
    ...         self.stat_computation_plan.add_aggregator(aggregator_fn=Max, columns=["id"])
    ...         return self
    ...
    ...     def _transform_numpy(self, batch):
    ...         return {"share": batch["id"] / self.stats_["max(id)"]}
    >>> Share().fit_transform(skate.data.range(3)).take_all()
    [{'share': 0.0}, {'share': 0.5}, {'share': 1.0}]
    """

    class FitStatus(enum.StrEnum):
        """Whether a preprocessor has been fitted, or needs to be."""

        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        FITTED = "FITTED"

    _is_fittable = True
    _fitted = False
    stats_: Any

    def __init__(self) -> None:
        self.stats_ = {}

    @property
    def stat_computation_plan(self) -> StatComputationPlan:
        """The aggregates that `_fit` requests, computed in one pass when it returns."""
        plan: StatComputationPlan = vars(self).setdefault("_stat_computation_plan", StatComputationPlan())
        return plan

    def fit_status(self) -> Preprocessor.FitStatus:
        """Return whether the preprocessor has been fitted, or needs to be."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        if self._check_has_fitted_state():
            return Preprocessor.FitStatus.FITTED
        return Preprocessor.FitStatus.NOT_FITTED

    def has_stats(self) -> bool:
        """Return whether the statistics have been computed."""
        return bool(vars(self).get("stats_"))

    @checked()
    def fit(self, ds: Dataset) -> Preprocessor:
        """Compute the statistics that the preprocessor needs, and return the preprocessor.

        Args:
            ds: The dataset; ignored if the preprocessor is not fittable.
        """
        status = self.fit_status()
        if status is Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status is not Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(f"{self!r} was already fitted: its statistics are computed again.", stacklevel=2)
        return self._refit(ds)

    @checked(transform_batch_size=POSITIVE)
    def fit_transform(
        self,
        ds: Dataset,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Dataset:
        """Fit the preprocessor to a dataset, and return the transformed dataset.

        Args:
            ds: The dataset.
            transform_num_cpus: `num_cpus` of `transform`.
            transform_memory: `memory` of `transform`.
            transform_batch_size: `batch_size` of `transform`.
            transform_concurrency: `concurrency` of `transform`.
        """
        fitted = self.fit(ds)
        return fitted.transform(
            ds,
            num_cpus=transform_num_cpus,
            memory=transform_memory,
            batch_size=transform_batch_size,
            concurrency=transform_concurrency,
        )

    @checked(batch_size=POSITIVE)
    def transform(
        self,
        ds: Dataset,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Dataset:
        """Return the transformed dataset, which is computed lazily.

        Args:
            ds: The dataset.
            batch_size: Rows per batch; a whole block by default.
            num_cpus: CPUs per task.
            memory: Memory per task, in bytes.
            concurrency: Maximum number of concurrent tasks.

        Raises:
            PreprocessorNotFittedException: `fit` has not been called.
            NotImplementedError: The class does not define a transformation.
        """
        self._check_fitted("transform")
        return self._transform(
            ds, batch_size=batch_size, num_cpus=num_cpus, memory=memory, concurrency=concurrency
        )

    def transform_batch(self, data: Any) -> Any:
        """Transform one batch in this process.

        Args:
            data: A pandas DataFrame, a pyarrow Table, a dict of arrays, or an array.

        Returns:
            A batch in the format of the preprocessor, which may differ from that of `data`.

        Raises:
            PreprocessorNotFittedException: `fit` has not been called.
            ValueError: `data` has another type.
        """
        self._check_fitted("transform_batch")
        if not (frames.is_pandas(data) or isinstance(data, pa.Table | np.ndarray | dict)):
            raise ValueError(
                "transform_batch takes a pandas DataFrame, a pyarrow Table, a dict of ndarrays or an ndarray, got"
                f" {type(data).__name__}"
            )
        return self._transform_batch(data)

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return the format to transform in, if a class supports several."""
        return BatchFormat.PANDAS

    def get_input_columns(self) -> list[str]:
        """Return the input columns."""
        return list(getattr(self, "columns", None) or [])

    def get_output_columns(self) -> list[str]:
        """Return the output columns."""
        return list(getattr(self, "output_columns", None) or self.get_input_columns())

    def serialize(self) -> str | bytes:
        """Serialize the preprocessor for `deserialize`."""
        return base64.b64encode(cloudpickle.dumps(self)).decode("ascii")

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """Restore a serialized preprocessor. This can run code: load trusted data only."""
        loaded: Preprocessor = pickle.loads(base64.b64decode(serialized))
        return loaded

    # Methods to override.

    def _fit(self, ds: Dataset) -> Preprocessor:
        raise NotImplementedError(
            f"{type(self).__name__} has nothing to fit: define _fit(self, ds), or set _is_fittable = False"
        )

    def _transform_pandas(self, df: Any) -> Any:
        raise NotImplementedError

    def _transform_numpy(self, np_data: Any) -> Any:
        raise NotImplementedError

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        raise NotImplementedError

    def _get_transform_config(self) -> dict[str, Any]:
        """Return options of `Dataset.map_batches` for this preprocessor."""
        return {}

    def _fit_data(self, ds: Dataset) -> Dataset:
        """Return the dataset from which the requested statistics are computed."""
        return ds

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        """Convert the computed statistics to those that are stored."""
        return found

    # Implementation.

    def _check_has_fitted_state(self) -> bool:
        # By convention, the names of fitted attributes end with an underscore.
        kept = [
            value for name, value in vars(self).items() if name.endswith("_") and not name.startswith("_")
        ]
        return self._fitted or any(
            value is not None and not (isinstance(value, dict) and not value) for value in kept
        )

    def _check_fitted(self, method: str) -> None:
        fitted = (Preprocessor.FitStatus.FITTED, Preprocessor.FitStatus.NOT_FITTABLE)
        if self.fit_status() not in fitted:
            raise PreprocessorNotFittedException(
                f"{self!r} must be fitted before {method}: call fit(dataset), or fit_transform(dataset)"
            )

    def _refit(self, ds: Dataset) -> Preprocessor:
        self.stats_ = {}
        self._fitted = False
        self.stat_computation_plan.reset()
        fitted = self._fit(ds)
        if len(fitted.stat_computation_plan):
            fitted.stats_ = fitted._finish_fit(fitted.stat_computation_plan.compute(fitted._fit_data(ds)))
        fitted._fitted = True
        return fitted

    def _determine_transform_to_use(self) -> BatchFormat:
        """Return the format of the batches to transform.

        Raises:
            NotImplementedError: The class does not define a transformation.
        """
        implemented = [each for each in BatchFormat if _overrides(type(self), f"_transform_{each}")]
        if not implemented:
            raise NotImplementedError(
                f"{type(self).__name__} defines no transformation: define _transform_pandas, _transform_numpy or"
                " _transform_arrow"
            )
        preferred = self.preferred_batch_format()
        return preferred if preferred in implemented else implemented[0]

    def _transform(self, ds: Dataset, **given: Any) -> Dataset:
        batch_format = BatchFormat(self._determine_transform_to_use())
        chosen = {name: value for name, value in given.items() if value is not None}
        return ds.map_batches(
            Transform(self, batch_format),
            batch_format="pyarrow" if batch_format is BatchFormat.ARROW else batch_format.value,
            zero_copy_batch=True,
            **{**self._get_transform_config(), **chosen},
        )

    def _transform_batch(self, data: Any) -> Any:
        batch_format = BatchFormat(self._determine_transform_to_use())
        if batch_format is BatchFormat.NUMPY:
            is_numpy = isinstance(data, dict | np.ndarray)
            return self._transform_numpy(data if is_numpy else batches.to_batch(_block(data), "numpy"))
        if batch_format is BatchFormat.PANDAS:
            is_frame = frames.is_pandas(data)
            return self._transform_pandas(data if is_frame else batches.to_batch(_block(data), "pandas"))
        made = self._transform_arrow(_block(data))
        return batches.to_batch(made, "pandas") if frames.is_pandas(data) else made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_stat_computation_plan"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class SerializablePreprocessorBase(Preprocessor, abc.ABC):
    """A preprocessor that is saved as its options and statistics, without its code.

    Later versions of its class can load it, even if the class has moved. Skate's own preprocessors are of this kind;
    for custom ones, see `skate.data.preprocessors.version_support.SerializablePreprocessor`.
    """

    MAGIC_CLOUDPICKLE: ClassVar[bytes] = b"CPKL:"
    SERIALIZER_FORMAT_VERSION: ClassVar[int] = 1

    _version: ClassVar[int] = 0
    _class_id: ClassVar[str | None] = None

    @classmethod
    def get_preprocessor_class_id(cls) -> str:
        """Return the name under which instances are saved."""
        # A subclass does not inherit the name.
        return vars(cls).get("_class_id") or cls.__name__

    @classmethod
    def set_preprocessor_class_id(cls, identifier: str) -> None:
        """Set the name under which instances are saved."""
        cls._class_id = identifier

    @classmethod
    def get_version(cls) -> int:
        """Return the version of the saved state."""
        return cls._version

    @classmethod
    def set_version(cls, version: int) -> None:
        """Set the version of the saved state."""
        cls._version = version

    def serialize(self) -> bytes:
        """Serialize the preprocessor to bytes for `deserialize`.

        >>> from skate.data.preprocessors import Normalizer
        >>> SerializablePreprocessorBase.deserialize(Normalizer(["a", "b"]).serialize())
        Normalizer(columns=['a', 'b'], norm='l2', output_columns=['a', 'b'])
        """
        saved = {
            "type": self.get_preprocessor_class_id(),
            "version": self.get_version(),
            "fields": self._get_serializable_fields(),
            "stats": self._get_stats(),
            "serializer_format_version": self.SERIALIZER_FORMAT_VERSION,
        }
        return self.MAGIC_CLOUDPICKLE + bytes(cloudpickle.dumps(saved))

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """Restore a serialized preprocessor. This can run code: load trusted data only.

        Raises:
            ValueError: The bytes are not a serialized preprocessor.
            UnknownPreprocessorError: The class is not registered.
        """
        magic = SerializablePreprocessorBase.MAGIC_CLOUDPICKLE
        if isinstance(serialized, str):
            return Preprocessor.deserialize(serialized)
        if not serialized.startswith(magic):
            raise ValueError(
                f"the bytes are not a serialized preprocessor: they start with {serialized[:20]!r} instead of {magic!r}"
            )
        saved = pickle.loads(serialized[len(magic) :])
        cls: Any = registry.get_class(saved["type"])
        made: SerializablePreprocessorBase = cls.__new__(cls)
        made._set_serializable_fields(saved["fields"], saved["version"])
        made._set_stats(saved["stats"])
        return made

    def _get_serializable_fields(self) -> dict[str, Any]:
        """Return the fields to save besides the statistics."""
        fields = {name: getattr(self, name) for name in options.options_of(type(self))}
        return {**fields, "_fitted": self._fitted} if self._is_fittable else fields

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        """Restore saved fields of this or an earlier version of the class."""
        self.__setstate__(fields)

    def _get_stats(self) -> dict[str, Any]:
        """Return the statistics to save."""
        return vars(self).get("stats_") or {}

    def _set_stats(self, stats: dict[str, Any]) -> None:
        """Restore saved statistics."""
        self.stats_ = stats

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(options.restore_state(type(self), state))

    def __repr__(self) -> str:
        return options.describe(self)


class Transform:
    """Function that transforms batches. It has the name of the preprocessor, which progress and statistics show."""

    def __init__(self, preprocessor: Preprocessor, batch_format: BatchFormat) -> None:
        self._preprocessor = preprocessor
        self._method = f"_transform_{batch_format}"
        self.__name__ = type(preprocessor).__name__

    def __call__(self, batch: Any) -> Any:
        return getattr(self._preprocessor, self._method)(batch)


def _overrides(cls: type, method: str) -> bool:
    return getattr(cls, method) is not getattr(Preprocessor, method)


def _block(data: Any) -> pa.Table:
    return batches.to_block({TENSOR_COLUMN_NAME: data} if isinstance(data, np.ndarray) else data)
