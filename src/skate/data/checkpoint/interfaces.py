"""Where a job notes the ids of the rows that it has written, and what is wrong if it cannot."""

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
    """A `CheckpointConfig` is wrong, or does not fit the rows; the message says what, and what to do."""


class InvalidCheckpointingOperators(ValueError):
    """Ids cannot tell which rows of a plan, or of a sink, are done; the message says why, and what to do."""


class CheckpointBackend(enum.Enum):
    """What keeps the ids. Skate asks the filesystem itself what it can do; this says the same in Ray's words."""

    CLOUD_OBJECT_STORAGE = "CLOUD_OBJECT_STORAGE"
    FILE_STORAGE = "FILE_STORAGE"


class CheckpointConfig:
    """Let writes note the ids of the rows that they have written, and leave these rows out when they are run again.

    Set it as `DataContext.checkpoint_config`, before the dataset is made. It is for rows that have an id of their own:
    a column that the source gives, that stays as it is through all steps, and whose values are unique. Input may be
    added or reordered between two runs, and the program may be another one. For the same program on the same data
    prefer `write_*(resume=True)`, which needs no ids, reads nothing again that is done, and notices changes.

    Args:
        id_column: The column.
        checkpoint_path: The folder for the ids: an absolute path, or a URI. If not given, `ray_data_checkpoint` in
            what the environment variable `RAY_DATA_CHECKPOINT_PATH_BUCKET` names.
        delete_checkpoint_on_success: Forget the ids when all rows are written.
        override_filesystem: A pyarrow or fsspec filesystem to use; found by the path if not given.
        override_backend: Deprecated in Ray; changes nothing but `backend`.
        write_num_threads: Accepted; every task writes its ids itself.
        checkpoint_path_partition_filter: Which files of ids to believe, by the partition values in their paths.

    Raises:
        InvalidCheckpointingConfig: There is no column, or no such place.

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
                f"Checkpoint ID column is {id_column!r}: pass the name of the column whose values tell rows apart"
            )
        if override_backend is not None:
            warnings.warn(
                "override_backend is deprecated in Ray: leave it out, the filesystem says what it is",
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
        """The folder for the ids, as the filesystem names it."""
        return self._folder

    def _default_path(self) -> str:
        name = self.DEFAULT_CHECKPOINT_PATH_BUCKET_ENV_VAR
        bucket = os.environ.get(name)
        if bucket is None:
            raise InvalidCheckpointingConfig(
                f"nobody says where to keep the ids: set CheckpointConfig.checkpoint_path, or {name} in the environment"
            )
        return f"{bucket}/{self.DEFAULT_CHECKPOINT_PATH_DIR}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckpointConfig) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"CheckpointConfig({self.id_column!r}, {self.checkpoint_path!r})"


def config_of(given: Any) -> CheckpointConfig | None:
    """Return what a user has set as `DataContext.checkpoint_config`, which may be a dict of arguments.

    Raises:
        TypeError: It is something else.
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
    # Workers may have another working directory, and so may the program when it is run again.
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
