"""The entry point of Tune: an experiment from a trainable and a search space."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import os
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import skate
from skate.train._storage import folders
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune._experiment.folder import TUNER, ExperimentFolder
from skate.tune._experiment.recorder import Recorder, read_trials
from skate.tune._experiment.staging import open_folder
from skate.tune._experiment.uploads import Uploader, open_for_run
from skate.tune._loop.controller import TuneController
from skate.tune._loop.settings import Settings
from skate.tune._trainers import TrainerFunction, check_space, run_config_of
from skate.tune._validation import (
    check_checkpoint_config,
    check_param_space,
    check_same_space,
    check_same_trainable,
    check_serializable,
)
from skate.tune._views.progress import Progress
from skate.tune.analysis import ExperimentAnalysis
from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.impl.config import RunConfig, adapt_config
from skate.tune.progress_reporter import ReporterCallback
from skate.tune.registry import check_trainable, get_trainable_cls
from skate.tune.result_grid import ResultGrid
from skate.tune.schedulers import FIFOScheduler
from skate.tune.search import BasicVariantGenerator, ConcurrencyLimiter, SearchAlgorithm, SearchGenerator
from skate.tune.search.variant_generator import count_variants
from skate.tune.stopper import CombinedStopper, FunctionStopper, NoopStopper, Stopper, TimeoutStopper
from skate.tune.trainable.trainable import Trainable
from skate.tune.trainable.util import is_trainable_class, resources_of, trainable_name
from skate.tune.tune_config import ResumeConfig, TuneConfig

__all__ = ["Tuner"]

_NO_LIMIT = 1 << 62  # of samples
Trainables = str | Callable[[dict[str, Any]], Any] | type[Trainable] | DataParallelTrainer


class Tuner:
    """An experiment: trials of a trainable with configurations from a search space.

    Args:
        trainable: A function of the configuration, a subclass of `Trainable`, a registered name, or a trainer such as
            `TorchTrainer`.
        param_space: The search space. For a trainer, it has arguments of the trainer, such as `train_loop_config`.
        tune_config: How the space is explored.
        run_config: Where results are stored, and how failures are handled.

    Example:
        >>> from skate import tune
        >>> def objective(config):
        ...     return {"loss": (config["x"] - 3) ** 2}
        >>> tuner = tune.Tuner(
        ...     objective,
        ...     param_space={"x": tune.grid_search([1, 2, 3, 4])},
        ...     tune_config=tune.TuneConfig(metric="loss", mode="min"),
        ... )
        >>> tuner.fit().get_best_result().config
        {'x': 3}
    """

    def __init__(
        self,
        trainable: Trainables | None = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        if trainable is None:
            raise TuneError(
                "Tuner needs a `trainable`: a function of the configuration, or a subclass of Trainable."
            )
        check_param_space(param_space)
        if isinstance(trainable, DataParallelTrainer):
            check_space(trainable, param_space or {})
            run_config = run_config or run_config_of(trainable)
            trainable = TrainerFunction(trainable)
        self._trainable = get_trainable_cls(trainable) if isinstance(trainable, str) else trainable
        self._name = trainable_name(trainable)
        check_trainable(self._trainable)
        check_serializable(self._trainable, self._name)
        self._param_space = dict(param_space or {})
        self._tune_config = tune_config or TuneConfig()
        self._run_config = copy.copy(adapt_config(run_config)) or RunConfig()
        self._resume: ResumeConfig | None = None
        self._checkpoint: str | None = None  # the checkpoint that new trials start from
        self._results: ResultGrid | None = None
        if self._run_config.name is not None:
            self._store()

    def _store(self) -> None:
        """Store the settings, so that `restore` works from now on, unless an experiment has run in the folder."""
        folder = self._folder()
        if not folder.exists():
            folder.create()
            self._write_settings(folder)

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            if name == "restore":
                raise AttributeError(
                    "Tuner.restore() returns another tuner: call it on the class, not on a tuner."
                )
            return super().__getattribute__(name)

    # ------------------------------------------------------------ restoring

    @classmethod
    def restore(
        cls,
        path: str,
        trainable: Trainables,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: ResumeConfig | None = None,
    ) -> Tuner:
        """Return a tuner that continues an experiment, whose program ended early.

        Call it on the class, not on a tuner.

        The folder must be trusted: parts of it are unpickled.

        Args:
            path: The experiment's folder: a local path or a URI.
            trainable: The same trainable, or a changed one of the same name.
            resume_unfinished: Whether unfinished trials continue from their latest checkpoints; otherwise they end.
            resume_errored: Whether failed trials continue from their latest checkpoints.
            restart_errored: Whether failed trials start again.
            param_space: The same search space, whose parameters are checked. The search continues with that of the
                first run, also where values differ.
            storage_filesystem: The filesystem of the path; determined by the path if not given.

        Raises:
            FileNotFoundError: The folder holds no experiment.
            ValueError: The trainable has another name, or the search space has other parameters.
        """
        folder = open_folder(path, storage_filesystem)
        stored = folder.read_state(TUNER)
        if stored is None:
            raise FileNotFoundError(
                f"{folder.location} holds no experiment to restore: `path` must be the folder of one experiment."
            )
        check_same_trainable(
            trainable_name(type(trainable) if isinstance(trainable, DataParallelTrainer) else trainable),
            stored.get("trainable"),
        )
        if param_space is not None:
            check_param_space(param_space)
            check_same_space(param_space, stored["param_space"])
        run_config = stored["run_config"]
        run_config.storage_path, run_config.name = os.path.split(folder.path)
        run_config.storage_filesystem = None if folder.is_local else folder.filesystem
        tuner = cls(
            trainable,
            param_space=param_space if param_space is not None else stored["param_space"],
            tune_config=stored["tune_config"],
            run_config=run_config,
        )
        kind = ResumeConfig.ResumeType
        tuner._resume = _resume_config or ResumeConfig(
            unfinished=kind.RESUME if resume_unfinished else kind.SKIP,
            errored=kind.RESUME if resume_errored else kind.RESTART if restart_errored else kind.SKIP,
        )
        return tuner

    def _continue(self, resume: ResumeConfig, *, keep_checkpoint_config: bool) -> None:
        """Continue the experiment of the same name with the settings of this tuner, if there is one.

        Args:
            resume: What happens to its trials.
            keep_checkpoint_config: Whether checkpoints are saved and kept as before.
        """
        folder = self._folder()
        if not folder.exists():
            return
        self._resume = resume
        stored = folder.read_state(TUNER)
        if keep_checkpoint_config and stored is not None:
            self._run_config.checkpoint_config = stored["run_config"].checkpoint_config

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether a folder holds an experiment that `restore` can continue.

        That is the case as soon as a `Tuner` with a name has been created.
        """
        return open_folder(path, storage_filesystem).has(TUNER)

    # ------------------------------------------------------------ running

    def fit(self) -> ResultGrid:
        """Run the experiment, and return its results.

        Failed trials do not fail the experiment; `ResultGrid.errors` has their exceptions.

        Raises:
            TuneError: The experiment cannot run, a trial does not report the metric, or the results could not be
                uploaded to the storage at the end; then `get_results` returns them.
            ValueError: The settings contradict each other.
        """
        assert self._run_config.checkpoint_config is not None
        check_checkpoint_config(self._trainable, self._run_config.checkpoint_config)
        if not skate.is_initialized():
            skate.init()
        settings = self._settings()
        with open_for_run(self._folder(), self._run_config.sync_config) as (folder, uploader):
            controller = self._run(folder, uploader, settings)
            self._results = self._grid(folder, controller.get_trials())
        return self._results

    def _run(self, folder: ExperimentFolder, uploader: Uploader | None, settings: Settings) -> TuneController:
        recorder = Recorder(folder, uploader)
        try:
            trials = self._restored(folder, settings) if self._resume is not None else []
            recorder.created = len(trials)
            if self._resume is None:
                recorder.start()
                self._write_settings(folder)
            else:
                recorder.restart(trials)
            progress = self._progress(folder)
            reporter = self._run_config.progress_reporter
            if reporter is not None:
                progress = []
                settings.callbacks = [
                    *settings.callbacks,
                    ReporterCallback(reporter, self._tune_config.metric, self._tune_config.mode),
                ]
            settings.callbacks = [*settings.callbacks, *progress]
            controller = TuneController(settings, folder, recorder, trials)
            try:
                controller.run()
            finally:
                for each in progress:
                    each.close()
                recorder.save_state(settings)
        finally:
            recorder.close()
        return controller

    def _grid(self, folder: ExperimentFolder, trials: list[Trial]) -> ResultGrid:
        analysis = ExperimentAnalysis(
            folder,
            trials=trials,
            default_metric=self._tune_config.metric,
            default_mode=self._tune_config.mode,
        )
        analysis._has_statistics = self._resume is None
        return ResultGrid(analysis)

    def _progress(self, folder: ExperimentFolder) -> list[Progress]:
        if self._run_config.verbose == 0:
            return []
        config = self._tune_config
        samples = config.num_samples if config.num_samples > 0 else None
        total = samples and samples * count_variants({"config": self._param_space})
        return [Progress(folder.name, folder.location, config.metric, config.mode, total)]

    def get_results(self) -> ResultGrid:
        """Return the results of an experiment that has run, in this program or, after `restore`, in an earlier one.

        Raises:
            RuntimeError: The experiment has not run.
        """
        if self._results is not None:
            return self._results
        if self._resume is None:
            raise RuntimeError("The experiment has not run yet: call Tuner.fit() first.")
        folder = self._folder()
        if not folder.exists():
            raise RuntimeError(
                f"The experiment in {folder.location} has not started yet: call Tuner.fit() first."
            )
        return self._grid(folder, read_trials(folder, folder.read_journal()))

    def _folder(self) -> ExperimentFolder:
        run = self._run_config
        if run.name is None:
            run.name = f"{self._name}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
        assert run.storage_path is not None
        filesystem, path = folders.locate(run.storage_path, run.storage_filesystem)
        return open_folder(posixpath.join(path, run.name), filesystem)

    def _write_settings(self, folder: ExperimentFolder) -> None:
        config, run = self._tune_config, copy.copy(self._run_config)
        run.storage_filesystem = None  # it may have credentials
        settings = {
            "trainable": self._name,
            "param_space": self._param_space,
            "tune_config": config,
            "run_config": run,
        }
        folder.write_settings(settings, config.metric, config.mode)

    def _settings(self) -> Settings:
        config, run = self._tune_config, copy.copy(self._run_config)
        assert run.checkpoint_config is not None
        if run.checkpoint_config.checkpoint_at_end is None:
            run.checkpoint_config = dataclasses.replace(
                run.checkpoint_config, checkpoint_at_end=_saves_checkpoints(self._trainable)
            )
        scheduler = config.scheduler or FIFOScheduler()
        if not scheduler.set_search_properties(config.metric, config.mode):
            raise ValueError(
                "the scheduler has a metric and a mode of its own, and TuneConfig too: set them in one place only."
            )
        return Settings(
            self._trainable,
            lambda configuration: resources_of(self._trainable, configuration),
            self._search(),
            scheduler,
            self._stopper(),
            run,
            metric=config.metric,
            max_concurrent=config.max_concurrent_trials,
            reuse_trainables=config.reuse_actors,
            callbacks=list(run.callbacks or []),
        )

    def _search(self) -> SearchAlgorithm:
        config, run = self._tune_config, self._run_config
        given = config.search_alg
        if given is None:
            search: SearchAlgorithm = BasicVariantGenerator(max_concurrent=config.max_concurrent_trials or 0)
        elif isinstance(given, SearchAlgorithm):
            search = given
        else:
            if config.max_concurrent_trials and not isinstance(given, ConcurrencyLimiter):
                given = ConcurrencyLimiter(given, max_concurrent=config.max_concurrent_trials)
            search = SearchGenerator(given)
        spec = {
            "run": self._name,
            "config": self._param_space,
            "num_samples": _NO_LIMIT if config.num_samples == -1 else config.num_samples,
            "stop": run.stop if isinstance(run.stop, Mapping) else None,
            "trial_name_creator": config.trial_name_creator,
            "trial_dirname_creator": config.trial_dirname_creator,
            "restore": self._checkpoint,
        }
        search.set_search_properties(config.metric, config.mode, self._param_space)
        search.add_configurations({self._run_config.name or "experiment": spec})
        return search

    def _stopper(self) -> Stopper:
        stop = self._run_config.stop
        stoppers: list[Stopper] = []
        for each in stop if isinstance(stop, list | tuple) else [stop]:
            if isinstance(each, Stopper):
                stoppers.append(each)
            elif callable(each):
                stoppers.append(FunctionStopper(each))
            elif each is not None and not isinstance(each, Mapping):
                raise TypeError(f"`stop` must be a dictionary, a Stopper or a function, not {each!r}.")
        if self._tune_config.time_budget_s is not None:
            stoppers.append(TimeoutStopper(self._tune_config.time_budget_s))
        if not stoppers:
            return NoopStopper()
        return stoppers[0] if len(stoppers) == 1 else CombinedStopper(*stoppers)

    # ------------------------------------------------------------ restored trials

    def _restored(self, folder: ExperimentFolder, settings: Settings) -> list[Trial]:
        assert self._resume is not None
        trials = read_trials(folder, folder.read_journal())
        state = folder.read_state()
        created = 0
        if state is not None:
            settings.search, settings.scheduler = state["search"], state["scheduler"]
            for callback, saved in zip(settings.callbacks, state["callbacks"], strict=False):
                if saved is not None:
                    callback.set_state(saved)
            created = state["created"]
        for _ in trials[created:]:  # the state is older than the journal: pass over trials that exist
            settings.search.next_trial()
        stop = self._run_config.stop
        for trial in trials:
            trial.stopping_criterion = dict(stop) if isinstance(stop, Mapping) else {}
            self._prepare(trial, self._resume)
        return trials

    def _prepare(self, trial: Trial, resume: ResumeConfig) -> None:
        kind = ResumeConfig.ResumeType
        action = kind(
            resume.errored
            if trial.status == Trial.ERROR
            else resume.finished
            if trial.status == Trial.TERMINATED
            else resume.unfinished
        )
        if action == kind.SKIP:
            if not trial.is_finished():
                trial.status = Trial.TERMINATED
            return
        trial.status = Trial.PENDING
        trial.error = None
        if action == kind.RESTART:
            trial.checkpoint = None
            trial.checkpoint_metrics = {}
            trial.last_result = {}


def _saves_checkpoints(trainable: Any) -> bool:
    """Return whether a trainable is a class that defines how checkpoints are saved."""
    return is_trainable_class(trainable) and trainable.save_checkpoint is not Trainable.save_checkpoint
