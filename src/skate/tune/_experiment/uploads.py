"""Upload an experiment in the background while it runs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from skate.air.config import SyncConfig
from skate.train._storage import folders
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._experiment.staging import Staging
from skate.tune.error import TuneError

log = logging.getLogger("skate.tune")

PERIOD_VARIABLE = "TUNE_GLOBAL_CHECKPOINT_S"  # Ray's variable for the seconds between two uploads
MIN_PAUSE_S = 1.0  # between two uploads
_SHARE = 0.2  # the fraction of the time that is spent on uploads that checkpoints request
_LAST_ATTEMPTS = 3
_SILENT_WAIT_S = 5.0  # how long the last upload may take before a message is logged


class Uploader:
    """Uploads the files of an experiment in a thread: at intervals, on request, and at the end.

    Args:
        staging: The files.
        config: The interval, and how long the last upload may take.
    """

    def __init__(self, staging: Staging, config: SyncConfig) -> None:
        self._staging = staging
        self._config = config
        self._pause = MIN_PAUSE_S
        self._lock = threading.Lock()
        self._dropped: list[str] = []
        self._wakes = threading.Event()
        self._closes = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="skate-tune-uploads", daemon=True)

    def download(self, trials: Iterable[str]) -> None:
        """Download files of trials that continue; see `Staging.download`."""
        self._staging.download(trials)

    def start(self) -> None:
        """Start the thread, unless it is running. Experiments that share a folder call this more than once."""
        if self._thread.ident is None:
            self._thread.start()

    def request(self, dropped: Iterable[str] = ()) -> None:
        """Upload soon.

        Args:
            dropped: Folders in the storage to delete after that upload, when no file there refers to them.
        """
        with self._lock:
            self._dropped += dropped
        self._wakes.set()

    def close(self) -> Exception | None:
        """Upload one last time. Return the error if the upload fails or does not finish in time."""
        self._closes.set()
        self._wakes.set()
        if self._thread.ident is None:
            self._thread.start()
        timeout = float(self._config.sync_timeout)
        self._thread.join(min(timeout, _SILENT_WAIT_S))
        if self._thread.is_alive():
            log.info("uploading %s to %s …", self._staging.local, self._staging.location)
            self._thread.join(max(0.0, timeout - _SILENT_WAIT_S))
        if self._thread.is_alive():
            return TimeoutError(f"the upload took longer than SyncConfig(sync_timeout={timeout:g})")
        return self._error

    def _run(self) -> None:
        while not self._closes.is_set():
            self._wakes.wait(self._config.sync_period)
            if self._closes.wait(self._pause):
                break
            self._wakes.clear()
            self._upload()
            if self._error is not None:
                log.warning("%s. The next attempt is in at most %g s.", self._error, self._config.sync_period)
        for attempt in range(_LAST_ATTEMPTS):
            if attempt:
                time.sleep(MIN_PAUSE_S)
            self._upload()
            if self._error is None:
                return

    def _upload(self) -> None:
        begun = time.monotonic()
        with self._lock:
            dropped, self._dropped = self._dropped, []
        try:
            self._staging.upload()
        except Exception as error:  # fsspec filesystems raise errors of their libraries
            self._error = error
            with self._lock:
                self._dropped += dropped
        else:
            self._error = None
            for path in dropped:
                self._delete(path)
        self._pause = max(MIN_PAUSE_S, (time.monotonic() - begun) / _SHARE)

    def _delete(self, path: str) -> None:
        try:
            folders.delete(self._staging.filesystem, path)
        except Exception as error:
            log.warning("a checkpoint that is no longer needed remains in %s: %s", path, error)


@contextmanager
def open_for_run(
    folder: ExperimentFolder, config: SyncConfig | None
) -> Iterator[tuple[ExperimentFolder, Uploader | None]]:
    """Provide an experiment's folder for writing, with its uploads if it is not on a local disk.

    Args:
        folder: The folder.
        config: When to upload; if None, `$TUNE_GLOBAL_CHECKPOINT_S` may set the interval.

    Raises:
        TuneError: Another program on this machine runs the experiment, the folder is not writable, or the last upload
            was incomplete.
    """
    if folder.is_local:
        yield folder, None
        return
    staging = Staging(folder.filesystem, folder.path)
    with staging.locked():
        with folder.explain_errors():
            staging.prepare()
        uploader = Uploader(staging, config or _default_config())
        try:
            yield ExperimentFolder(folder.path, folder.filesystem, staging.local), uploader
        except BaseException:
            error = uploader.close()
            if error is not None:
                log.warning(_describe(staging, error))
            else:
                staging.remove()
            raise
        error = uploader.close()
        if error is not None:
            raise TuneError(_describe(staging, error)) from error
        staging.remove()


def _default_config() -> SyncConfig:
    """Return the configuration of a run that has none."""
    period = os.environ.get(PERIOD_VARIABLE, "auto")
    if period == "auto":
        return SyncConfig()
    try:
        return SyncConfig(sync_period=float(period))  # type: ignore[arg-type]  # fractions are fine
    except ValueError:
        raise ValueError(
            f'{PERIOD_VARIABLE} is {period!r}: set it to a number of seconds, or to "auto".'
        ) from None


def _describe(staging: Staging, error: Exception) -> str:
    return (
        f"not all results are in {staging.location}: {error}. They are in {staging.local}; Tuner.restore() on this "
        "machine continues with these files, and fit() uploads them."
    )
