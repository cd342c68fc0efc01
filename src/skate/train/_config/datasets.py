"""How datasets are split between workers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from skate._base.suggestions import closest
from skate.air import _arguments as arguments

if TYPE_CHECKING:
    from skate.data import DataIterator, Dataset, ExecutionOptions


class DataConfig:
    """Which datasets are split between the workers, and with which options they run.

    Args:
        datasets_to_split: The names of the datasets to split; "all" splits all of them. Each worker gets all rows of
            the other datasets.
        execution_options: Options for all datasets, or a dictionary of options by the name of the dataset.
        enable_shard_locality: Prefer blocks that are on a worker's node.
        resumes: Resume each dataset at the positions stored with the checkpoint from which the run resumes. False
            starts the pass from the beginning, for training functions that skip the rows they have seen. Not in Ray.
    """

    resumes = True

    def __init__(
        self,
        datasets_to_split: Literal["all"] | list[str] = "all",
        execution_options: ExecutionOptions | dict[str, ExecutionOptions] | None = None,
        enable_shard_locality: bool = True,
        *,
        resumes: bool = True,
    ) -> None:
        named = isinstance(datasets_to_split, list) and all(
            isinstance(each, str) for each in datasets_to_split
        )
        if not named and (not isinstance(datasets_to_split, str) or datasets_to_split != "all"):
            raise TypeError(
                "`datasets_to_split` should be 'all' or a list of names of datasets, got "
                f"{arguments.shown(datasets_to_split)}."
            )
        _check_execution_options(execution_options)
        arguments.flag("enable_shard_locality", enable_shard_locality)
        arguments.flag("resumes", resumes)
        self._split = datasets_to_split
        self._options = execution_options
        self._locality = enable_shard_locality
        self.resumes = resumes

    def check(self, datasets: Mapping[str, Any]) -> None:
        """Raise ValueError if `datasets_to_split` contains a name that looks like a misspelled dataset.

        Other unknown names are ignored, as in Ray: one configuration may serve several trainers.
        """
        for name in () if self._split == "all" else self._split:
            if name not in datasets and (close := closest(name, datasets)):
                raise ValueError(
                    f"`datasets_to_split` has {name!r}, which is not one of the trainer's datasets. Did you mean "
                    f"{close!r}?"
                )

    def configure(
        self,
        datasets: Mapping[str, Dataset],
        world_size: int,
        worker_handles: list[Any] | None = None,
        worker_node_ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, DataIterator]]:
        """Return each worker's part of each dataset.

        Override it to split them in another way.

        Args:
            datasets: The datasets, by name.
            world_size: The number of workers.
            worker_handles: The workers.
            worker_node_ids: The node of each worker.
            **kwargs: Arguments of later versions.
        """
        shares: list[dict[str, DataIterator]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            dataset = self._with_options(name, dataset)
            if self._split == "all" or name in self._split:
                hints = worker_node_ids if self._locality else None
                parts = dataset.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                parts = [dataset.iterator() for _ in range(world_size)]
            for rank, share in enumerate(shares):
                share[name] = parts[rank]
        return shares

    def _with_options(self, name: str, dataset: Dataset) -> Dataset:
        options = self._options.get(name) if isinstance(self._options, dict) else self._options
        if options is None:
            return dataset
        dataset = copy.copy(dataset)
        dataset.context.execution_options = options
        return dataset

    @staticmethod
    def default_ingest_options() -> ExecutionOptions:
        """Return the execution options that datasets use by default."""
        from skate.data import DataContext

        return copy.deepcopy(DataContext.get_current().execution_options)


def _check_execution_options(options: Any) -> None:
    if options is None:
        return
    from skate.data import ExecutionOptions

    must = "ExecutionOptions, or a dictionary of them by the names of datasets"
    if isinstance(options, ExecutionOptions):
        return
    if not isinstance(options, dict):
        arguments.refuse("execution_options", must, options)
    for name, each in options.items():
        if not isinstance(name, str) or not isinstance(each, ExecutionOptions | None):
            arguments.refuse("execution_options", must, options)
