"""The configuration of an experiment: its storage, and its handling of failures and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skate.air import _arguments as arguments
from skate.air import config as shared
from skate.air.config import DEFAULT_STORAGE, STORAGE_VARIABLE, SyncConfig
from skate.tune._workers.output import log_files
from skate.tune.stopper import Stopper

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from skate.tune.callback import Callback

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig"]

StopCriterion = Mapping[str, Any] | Stopper | Callable[[str, dict[str, Any]], bool]


@dataclass
class FailureConfig:
    """How an experiment handles failed trials.

    Args:
        max_failures: How many times each trial is restarted from its latest checkpoint; -1 for no limit.
        fail_fast: Whether the experiment ends at the first failed trial; "raise" raises its exception.
    """

    max_failures: int = 0
    fail_fast: bool | Literal["raise"] = False

    def __post_init__(self) -> None:
        arguments.whole(
            "max_failures", self.max_failures, low=-1, must="a non-negative integer, or -1 for no limit"
        )
        if self.fail_fast != "raise" and not isinstance(self.fail_fast, bool):
            arguments.refuse("fail_fast", 'True, False or "raise"', self.fail_fast, ValueError)
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"`max_failures` is {self.max_failures} and `fail_fast` is {self.fail_fast!r}: an experiment that ends "
                "at the first failure does not restart trials. Set only one of them."
            )


@dataclass
class CheckpointConfig:
    """Which checkpoints of a trial are saved and kept.

    Args:
        num_to_keep: How many checkpoints to keep; None for all. The latest is always kept, to resume from.
        checkpoint_score_attribute: The metric by which the best checkpoints are kept; None to keep the latest ones.
        checkpoint_score_order: Whether the best checkpoints have the highest ("max") or the lowest ("min") score.
        checkpoint_frequency: The number of steps between two checkpoints of a trainable class; 0 for none. A function
            decides itself, with `report(…, checkpoint=…)`.
        checkpoint_at_end: Whether a trainable class saves a checkpoint when the trial ends. By default, `Tuner` does
            so for classes that define `save_checkpoint`, and `tune.run` does not.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            arguments.whole("num_to_keep", self.num_to_keep, low=1, must="a positive integer or None")
        arguments.text("checkpoint_score_attribute", self.checkpoint_score_attribute, optional=True)
        arguments.choice("checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        arguments.whole("checkpoint_frequency", self.checkpoint_frequency)
        arguments.flag("checkpoint_at_end", self.checkpoint_at_end)


@dataclass
class RunConfig:
    """The name and the storage of an experiment, when it stops, and how it handles failures and checkpoints.

    Args:
        name: The name of the experiment and of its folder below `storage_path`.
        storage_path: The folder of all experiments: a local path, or a URI such as `s3://bucket/folder`. The default is
            `$SKATE_STORAGE_PATH` or `~/skate_results`.
        storage_filesystem: The filesystem of that path, of pyarrow or fsspec; determined by the path if not given.
        failure_config: How failed trials are handled.
        checkpoint_config: Which checkpoints are saved and kept.
        sync_config: When results are uploaded to a storage that is not a local disk.
        verbose: 0 for no output; otherwise a table of trials on a terminal, and lines in the log.
        stop: When trials stop: metrics with the values at which a trial ends, a `Stopper`, or a function of the trial's
            id and its result.
        callbacks: Objects that receive the events of the experiment.
        progress_reporter: Prints the state of the experiment instead of the table.
        log_to_file: Whether the output of a trial is copied to the files `stdout` and `stderr` in its folder; or the
            name of one file for both, or two names. The output of all workers is in the session's logs.
        local_dir: Replaced by `storage_path`.

    Raises:
        DeprecationWarning: `local_dir` is given.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: pafs.FileSystem | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    verbose: int | None = None
    stop: StopCriterion | Sequence[StopCriterion] | None = None
    callbacks: list[Callback] | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False
    local_dir: str | None = None

    def __post_init__(self) -> None:
        if self.local_dir is not None:
            raise DeprecationWarning(f"`local_dir` is {self.local_dir!r}: pass it as `storage_path` instead.")
        if self.storage_path is not None:
            arguments.path("storage_path", self.storage_path)
        self.storage_path = os.fspath(
            self.storage_path or os.environ.get(STORAGE_VARIABLE) or Path(DEFAULT_STORAGE).expanduser()
        )
        if is_local(self.storage_path, self.storage_filesystem):
            path = self.storage_path.removeprefix("file://")
            self.storage_path = os.path.abspath(os.path.expanduser(path))
        if self.name is not None:
            self.name = arguments.folder_name("name", self.name)
        log_files(self.log_to_file)  # raises for values of other types
        self.failure_config = adapt_config(self.failure_config) or FailureConfig()
        self.checkpoint_config = adapt_config(self.checkpoint_config) or CheckpointConfig()


def adapt_config(config: Any) -> Any:
    """Convert a configuration of `skate.air`, which trainers also use, to Tune's. Return other objects unchanged."""
    for kind, adapted in (
        (shared.RunConfig, RunConfig),
        (shared.FailureConfig, FailureConfig),
        (shared.CheckpointConfig, CheckpointConfig),
    ):
        if isinstance(config, kind):
            known = {each.name for each in fields(adapted)}
            given = shared.given_settings(config)
            return adapted(**{name: adapt_config(given[name]) for name in given.keys() & known})
    return config


def is_local(path: str, filesystem: Any = None) -> bool:
    """Return whether a folder for experiments is on a local disk.

    Args:
        path: A path or a URI.
        filesystem: The filesystem of the path; determined by the path if None.

    Raises:
        TypeError: `filesystem` is not a filesystem.
        ValueError: `path` is a URI of another filesystem.
    """
    is_plain = "://" not in path or path.startswith("file://")
    if filesystem is None:
        return is_plain
    if getattr(filesystem, "type_name", None) != "local":
        from skate.air import _filesystems as filesystems  # needs PyArrow

        filesystems.check("storage_filesystem", filesystem)
        return False
    if not is_plain:
        raise ValueError(
            f"`storage_path` is {path!r}, but `storage_filesystem` is a local filesystem: leave one of them out."
        )
    return True
