"""What all readers take: how their tasks run, and which files they read."""

from __future__ import annotations

import warnings
from typing import Any, TypedDict

from skate.data._arguments import POSITIVE, check_options
from skate.data._compute import ActorPoolStrategy, TaskPoolStrategy, compute_of
from skate.data._io import validation
from skate.data._plan import nodes
from skate.data.context import DataContext
from skate.data.dataset import Dataset


class TaskOptions(TypedDict, total=False):
    """How the tasks of a reader run.

    Keys:
        override_num_blocks: How many parts to read in; chosen by size if not given.
        concurrency: How many tasks at a time.
        num_cpus: CPUs that each task takes, and so on with `num_gpus`, `memory` and `resources`.
        ray_remote_args: Further options of the tasks.
        parallelism: An older name of `override_num_blocks`.
    """

    parallelism: int
    override_num_blocks: int | None
    concurrency: int | None
    compute: Any
    num_cpus: float | None
    num_gpus: float | None
    memory: float | None
    resources: dict[str, float] | None
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    max_calls: int | None
    accelerator_type: str | None
    runtime_env: dict[str, Any] | None
    ray_remote_args: dict[str, Any] | None


class FileOptions(TaskOptions, total=False):
    """Which files a reader reads.

    Keys:
        filesystem: Where they are, if the paths do not say: a filesystem of pyarrow or fsspec.
        arrow_open_stream_args: For opening them.
        file_extensions: Read only files whose names end so.
        include_paths: Add a column `path`.
        ignore_missing_paths: Leave out paths that are not there.
        partitioning: What the names of folders tell.
        partition_filter: Which folders to read, by what their names tell.
        shuffle: "files", or a FileShuffleConfig: read files in a random order.
    """

    filesystem: Any
    arrow_open_stream_args: dict[str, Any] | None
    file_extensions: list[str] | None
    include_paths: bool
    ignore_missing_paths: bool
    partitioning: Any
    partition_filter: Any
    meta_provider: Any
    shuffle: Any


_FILE_KEYS = frozenset(FileOptions.__annotations__) - frozenset(TaskOptions.__annotations__)


def file_arguments(options: Any) -> dict[str, Any]:
    """Return what is said about files, as sources call it."""
    found = {key: value for key, value in options.items() if key in _FILE_KEYS}
    validation.check_known(options, FileOptions.__annotations__, "this reader", ("paths",))
    check_options(found, FileOptions)
    if "arrow_open_stream_args" in found:
        found["open_stream_args"] = found.pop("arrow_open_stream_args")
    return found


def dataset_of(source: Any, options: Any) -> Dataset:
    """Return the dataset that reads a source."""
    given = {key: value for key, value in options.items() if key in TaskOptions.__annotations__}
    validation.check_known(
        options, FileOptions.__annotations__, "this reader"
    )  # of sources that are no files
    checked = {key: value for key, value in given.items() if key != "concurrency"}  # `compute_of` checks it
    check_options(checked, TaskOptions, override_num_blocks=POSITIVE)
    parallelism = given.pop("parallelism", -1)
    blocks = given.pop("override_num_blocks", None)
    if blocks is None and parallelism not in (-1, None):
        blocks = parallelism
    check_options({"override_num_blocks": blocks}, TaskOptions, override_num_blocks=POSITIVE)
    remote = given.pop("ray_remote_args", None) or {}
    strategy, concurrency = given.pop("compute", None), given.pop("concurrency", None)
    strategy = (
        None if concurrency is not None else _as_task_pool(strategy)
    )  # the number goes first, as in Ray
    compute = compute_of(False, strategy, concurrency, {**remote, **given})
    return Dataset(nodes.Read(source, blocks, compute), DataContext.get_current())


def _as_task_pool(strategy: Any) -> Any:
    """Return a pool of tasks for one of actors: a read keeps no state, and tasks share processes anyway."""
    if not isinstance(strategy, ActorPoolStrategy):
        return strategy
    most = strategy.size or strategy.max_size
    return TaskPoolStrategy(None if most in (None, float("inf")) else int(most))


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what all readers take from what is for a format's own reader."""
    known = FileOptions.__annotations__
    given = {key: value for key, value in options.items() if key in known}
    own = {key: value for key, value in options.items() if key not in known}
    validation.check_spelling(own, known, "this reader")
    return given, own


def warn_deprecated(what: str, instead: str) -> None:
    """Tell the caller of a reader that Ray will not take an argument for long; Skate still does."""
    warnings.warn(f"{what} is deprecated in Ray: {instead}", DeprecationWarning, stacklevel=4)
