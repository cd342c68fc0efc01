"""Chains of preprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.data._arguments import checked
from skate.data._preprocessors.options import Option
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.preprocessor import Preprocessor, SerializablePreprocessorBase
from skate.data.util.data_batch_conversion import BatchFormat

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["Chain"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.chain")
class Chain(SerializablePreprocessorBase):
    """Apply preprocessors in sequence; each is fitted to the output of the previous ones.

    Args:
        *preprocessors: The preprocessors, in order.

    >>> import skate
    >>> from skate.data.preprocessors import MinMaxScaler, SimpleImputer
    >>> ds = skate.data.from_items([{"x": 0}, {"x": None}, {"x": 4}])
    >>> Chain(SimpleImputer(["x"]), MinMaxScaler(["x"])).fit_transform(ds).take_all()
    [{'x': 0.0}, {'x': 0.5}, {'x': 1.0}]
    """

    preprocessors = Option[tuple[Preprocessor, ...]](())

    @checked()
    def __init__(self, *preprocessors: Preprocessor) -> None:
        super().__init__()
        self._preprocessors = preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        """Return whether all fittable preprocessors have been fitted."""
        status = Preprocessor.FitStatus
        found = {each.fit_status() for each in self.preprocessors} - {status.NOT_FITTABLE}
        if not found:
            return status.NOT_FITTABLE
        return found.pop() if len(found) == 1 else status.PARTIALLY_FITTED

    def fit_transform(
        self,
        ds: Dataset,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Dataset:
        """Fit each preprocessor to the output of the previous ones, and return the output of the last one.

        Args:
            ds: The dataset.
            transform_num_cpus: `num_cpus` of `transform`.
            transform_memory: `memory` of `transform`.
            transform_batch_size: `batch_size` of `transform`.
            transform_concurrency: `concurrency` of `transform`.
        """
        for each in self.preprocessors:
            ds = each.fit_transform(
                ds,
                transform_num_cpus=transform_num_cpus,
                transform_memory=transform_memory,
                transform_batch_size=transform_batch_size,
                transform_concurrency=transform_concurrency,
            )
        return ds

    def _refit(self, ds: Dataset) -> Preprocessor:
        for each in self.preprocessors:
            if each.fit_status() is not Preprocessor.FitStatus.NOT_FITTABLE:
                each._refit(ds)
            ds = each.transform(ds)
        return self

    def _transform(self, ds: Dataset, **given: Any) -> Dataset:
        for each in self.preprocessors:
            ds = each.transform(ds, **given)
        return ds

    def _transform_batch(self, data: Any) -> Any:
        for each in self.preprocessors:
            data = each.transform_batch(data)
        return data

    def _determine_transform_to_use(self) -> BatchFormat:
        return self.preprocessors[0]._determine_transform_to_use()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.preprocessors))})"
