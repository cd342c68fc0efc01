"""Options of all readers: for their tasks, and for the selection of files."""

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
    """Options for the tasks of a reader.

    Keys:
        override_num_blocks: Number of parts to read; chosen by size by default.
        concurrency: Maximum number of concurrent tasks.
        num_cpus: CPUs per task; likewise `num_gpus`, `memory` and `resources`.
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
    """Options for the selection of files.

    Keys:
        filesystem: A pyarrow or fsspec filesystem; derived from the paths by default.
        arrow_open_stream_args: Options for opening files.
        file_extensions: Read only files with one of these extensions.
        include_paths: Add a column `path`.
        ignore_missing_paths: Skip paths that do not exist.
        partitioning: Partitioning whose values become columns.
        partition_filter: Filter of files by the partition values in their paths.
        shuffle: "files" or a FileShuffleConfig, to read files in a random order.
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
    """Return the file options under the names that datasources use."""
    found = {key: value for key, value in options.items() if key in _FILE_KEYS}
    validation.check_known(options, FileOptions.__annotations__, "this reader", ("paths",))
    check_options(found, FileOptions)
    if "arrow_open_stream_args" in found:
        found["open_stream_args"] = found.pop("arrow_open_stream_args")
    return found


def dataset_of(source: Any, options: Any) -> Dataset:
    """Create the dataset that reads a datasource."""
    given = {key: value for key, value in options.items() if key in TaskOptions.__annotations__}
    validation.check_known(
        options, FileOptions.__annotations__, "this reader"
    )  # for datasources without files
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
    )  # the number takes precedence, as in Ray
    compute = compute_of(False, strategy, concurrency, {**remote, **given})
    return Dataset(nodes.Read(source, blocks, compute), DataContext.get_current())


def _as_task_pool(strategy: Any) -> Any:
    """Replace an actor pool with a task pool: reads are stateless, and tasks reuse processes anyway."""
    if not isinstance(strategy, ActorPoolStrategy):
        return strategy
    most = strategy.size or strategy.max_size
    return TaskPoolStrategy(None if most in (None, float("inf")) else int(most))


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of all readers and those of the format's own reader."""
    known = FileOptions.__annotations__
    given = {key: value for key, value in options.items() if key in known}
    own = {key: value for key, value in options.items() if key not in known}
    validation.check_spelling(own, known, "this reader")
    return given, own


def warn_deprecated(what: str, instead: str) -> None:
    """Warn that an argument is deprecated in Ray; Skate still supports it."""
    warnings.warn(f"{what} is deprecated in Ray: {instead}", DeprecationWarning, stacklevel=4)
