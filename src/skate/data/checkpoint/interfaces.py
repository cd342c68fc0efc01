"""The configuration of checkpointed writes, and its errors."""

from __future__ import annotations

import enum
import inspect
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.data._arguments import ArgumentTypeError, message
from skate.data._io import validation

if TYPE_CHECKING:
    from skate.data.datasource.partitioning import PathPartitionFilter

__all__ = [
    "CheckpointBackend",
    "CheckpointConfig",
    "InvalidCheckpointingConfig",
    "InvalidCheckpointingOperators",
]


class InvalidCheckpointingConfig(ValueError):
    """A `CheckpointConfig` is invalid or does not match the rows."""


class InvalidCheckpointingOperators(ValueError):
    """A plan or a sink does not support checkpoints."""


class CheckpointBackend(enum.Enum):
    """The kind of storage of the ids, for compatibility with Ray; Skate asks the filesystem itself."""

    CLOUD_OBJECT_STORAGE = "CLOUD_OBJECT_STORAGE"
    FILE_STORAGE = "FILE_STORAGE"


class CheckpointConfig:
    """Configure writes to record the ids of written rows, and to skip these rows in later runs.

    Set it as `DataContext.checkpoint_config` before the dataset is created. The rows need unique ids in a column of the
    source, which all steps keep unchanged. Between two runs, the input may be extended or reordered, and the program
    may change. For the same program on the same data, prefer `write_*(resume=True)`, which needs no ids, does not read
    finished parts again, and detects changes.

    Args:
        id_column: The column of the ids.
        checkpoint_path: The folder of the ids: an absolute path or a URI. By default `ray_data_checkpoint` in the
            folder or bucket of the environment variable `RAY_DATA_CHECKPOINT_PATH_BUCKET`.
        delete_checkpoint_on_success: Remove the ids when all rows are written.
        override_filesystem: A pyarrow or fsspec filesystem; inferred from the path by default.
        override_backend: Deprecated in Ray; sets only `backend`.
        write_num_threads: Accepted without effect: each task writes its own ids.
        checkpoint_path_partition_filter: Selects files of ids by the partition values in their paths.

    Raises:
        InvalidCheckpointingConfig: The column or the path is missing or invalid.

    >>> config = CheckpointConfig("id", "/tmp/ids")
    >>> config.id_column, config.checkpoint_path, config.backend.name
    ('id', '/tmp/ids', 'FILE_STORAGE')
    """

    DEFAULT_CHECKPOINT_PATH_BUCKET_ENV_VAR = "RAY_DATA_CHECKPOINT_PATH_BUCKET"
    DEFAULT_CHECKPOINT_PATH_DIR = "ray_data_checkpoint"

    def __init__(
        self,
        id_column: str | None = None,
        checkpoint_path: str | None = None,
        *,
        delete_checkpoint_on_success: bool = True,
        override_filesystem: Any = None,
        override_backend: CheckpointBackend | None = None,
        write_num_threads: int = 3,
        checkpoint_path_partition_filter: PathPartitionFilter | None = None,
    ) -> None:
        if not isinstance(id_column, str) or not id_column:
            raise InvalidCheckpointingConfig(
                f"Checkpoint ID column is {id_column!r}: pass the name of a column with unique values"
            )
        if override_backend is not None:
            warnings.warn(
                "override_backend is deprecated in Ray: leave it out, the filesystem determines the backend",
                FutureWarning,
                stacklevel=2,
            )
            if not isinstance(override_backend, CheckpointBackend):
                raise InvalidCheckpointingConfig(
                    f"override_backend is {override_backend!r}: pass a CheckpointBackend, or leave it out"
                )
        self.id_column = id_column
        self.checkpoint_path = checkpoint_path or self._default_path()
        self.filesystem, self._folder = _place(self.checkpoint_path, override_filesystem)
        self.backend = override_backend or _backend(self.filesystem)
        self.delete_checkpoint_on_success = delete_checkpoint_on_success
        self.write_num_threads = write_num_threads
        self.checkpoint_path_partition_filter = checkpoint_path_partition_filter

    @property
    def folder(self) -> str:
        """The path of the folder of ids within the filesystem."""
        return self._folder

    def _default_path(self) -> str:
        name = self.DEFAULT_CHECKPOINT_PATH_BUCKET_ENV_VAR
        bucket = os.environ.get(name)
        if bucket is None:
            raise InvalidCheckpointingConfig(
                f"the folder of the ids is missing: set CheckpointConfig.checkpoint_path, or {name} in the environment"
            )
        return f"{bucket}/{self.DEFAULT_CHECKPOINT_PATH_DIR}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckpointConfig) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __repr__(self) -> str:
        return f"CheckpointConfig({self.id_column!r}, {self.checkpoint_path!r})"


def config_of(given: Any) -> CheckpointConfig | None:
    """Return the value of `DataContext.checkpoint_config`, from a `CheckpointConfig` or a dict of its arguments.

    Raises:
        TypeError: The value has another type.
    """
    if given is None or isinstance(given, CheckpointConfig):
        return given
    if not isinstance(given, Mapping):
        words = "a CheckpointConfig, a dict of its arguments or None"
        raise ArgumentTypeError(message("checkpoint_config", words, given))
    arguments = dict(given)
    validation.check_known(
        arguments, tuple(inspect.signature(CheckpointConfig).parameters), "CheckpointConfig"
    )
    backend = arguments.get("override_backend")
    if isinstance(backend, str):
        if backend not in CheckpointBackend.__members__:
            raise InvalidCheckpointingConfig(
                f"override_backend is {backend!r}: it can be {', '.join(CheckpointBackend.__members__)}"
            )
        arguments["override_backend"] = CheckpointBackend[backend]
    return CheckpointConfig(**arguments)


def _place(path: str, filesystem: Any) -> tuple[pafs.FileSystem, str]:
    # Workers, and the next run of the program, may have another working directory.
    if not filesystems.scheme_of(path) and filesystem is None and not os.path.isabs(path):
        raise InvalidCheckpointingConfig(
            f"Invalid checkpoint path: {path!r} is relative. Pass an absolute path or a URI such as s3://bucket/ids"
        )
    try:
        return filesystems.resolve(path, filesystem)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise InvalidCheckpointingConfig(f"Invalid checkpoint path: {path!r}: {error}") from error


def _backend(filesystem: pafs.FileSystem) -> CheckpointBackend:
    local = filesystems.is_local(filesystem)
    return CheckpointBackend.FILE_STORAGE if local else CheckpointBackend.CLOUD_OBJECT_STORAGE
