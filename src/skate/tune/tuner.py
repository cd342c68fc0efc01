"""`Tuner`, which runs an experiment with a trainable and a search space."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import functools
import os
import pickle
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

import skate
from skate._api import tracing
from skate.train._storage import folders
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune._experiment.folder import TUNER, ExperimentFolder
from skate.tune._experiment.recorder import Recorder, read_trials
from skate.tune._experiment.staging import open_folder
from skate.tune._experiment.uploads import open_for_run
from skate.tune._loop.controller import TuneController
from skate.tune._loop.settings import ExperimentSettings, Settings
from skate.tune._restoring import prepare_trial, read_all_trials, storable_callbacks, use_objects
from skate.tune._stopping import create_stopper
from skate.tune._trainers import TrainerFunction, check_space, run_config_of
from skate.tune._validation import (
    check_checkpoint_config,
    check_param_space,
    check_same_space,
    check_same_trainable,
    check_serializable,
    parameters_of,
)
from skate.tune._views.progress import Progress
from skate.tune._views.run_description import RunDescription
from skate.tune.analysis import ExperimentAnalysis
from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import flat
from skate.tune.impl.config import RunConfig, adapt_config
from skate.tune.progress_reporter import ReporterCallback
from skate.tune.registry import check_trainable, get_trainable_cls
from skate.tune.result_grid import ResultGrid
from skate.tune.schedulers import FIFOScheduler
from skate.tune.search import BasicVariantGenerator, ConcurrencyLimiter, SearchAlgorithm, SearchGenerator
from skate.tune.search._placeholders import ObjectTable, check_references, session_of_references
from skate.tune.search.variant_generator import count_variants
from skate.tune.trainable.trainable import Trainable
from skate.tune.trainable.util import is_trainable_class, resources_of, trainable_name
from skate.tune.tune_config import ResumeConfig, TuneConfig
from skate.util._run_records import recording

__all__ = ["Tuner"]

_NO_LIMIT = 1 << 62  # of samples
_NO_DATE = "TUNE_DISABLE_DATED_SUBDIR"  # the variable that keeps the date out of the names of experiments
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
        self._stored_space: bytes | None = None  # of the first run, if `restore` was given another one
        self._tune_config = tune_config or TuneConfig()
        self._run_config = copy.copy(adapt_config(run_config)) or RunConfig()
        self._resume: ResumeConfig | None = None
        self._checkpoint: str | None = None  # the checkpoint that new trials start from
        self._export_formats: Sequence[str] = ()
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
        """Return a tuner that continues an experiment whose program ended early.

        Call it on the class, not on a tuner. The folder must be trusted, because parts of it are unpickled.

        Args:
            path: The experiment's folder: a local path or a URI.
            trainable: The same trainable, or a changed one with the same name.
            resume_unfinished: Whether unfinished trials continue from their latest checkpoints; otherwise they end.
            resume_errored: Whether failed trials continue from their latest checkpoints.
            restart_errored: Whether failed trials start again.
            param_space: The search space with new objects, such as references, which end with the program, datasets
                and functions. All trials get them. It must have the same parameters. Numbers, strings and
                distributions in it are ignored: those of the first run are used.
            storage_filesystem: The filesystem of the path; determined by the path if not given.

        Raises:
            FileNotFoundError: The folder holds no experiment.
            ValueError: The trainable has another name, the search space has other parameters, or no search space is
                given and the stored one contains references of a session that has ended.
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
            check_same_space(param_space, stored["parameters"])
        else:
            check_references(stored["session"])
        run_config = stored["run_config"]
        run_config.storage_path, run_config.name = os.path.split(folder.path)
        run_config.storage_filesystem = None if folder.is_local else folder.filesystem
        tuner = cls(
            trainable,
            param_space=pickle.loads(stored["param_space"]) if param_space is None else param_space,
            tune_config=stored["tune_config"],
            run_config=run_config,
        )
        if param_space is not None:
            tuner._stored_space = stored["param_space"]
        kind = ResumeConfig.ResumeType
        tuner._resume = _resume_config or ResumeConfig(
            unfinished=kind.RESUME if resume_unfinished else kind.SKIP,
            errored=kind.RESUME if resume_errored else kind.RESTART if restart_errored else kind.SKIP,
        )
        return tuner

    def _continue(self, resume: ResumeConfig, *, keep_checkpoint_config: bool) -> None:
        """If there is an experiment with the same name, continue it with the settings of this tuner.

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

        This is the case as soon as a `Tuner` with a name has been created.
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
        return self._fit()

    def _fit(self, others: Sequence[Tuner] = ()) -> ResultGrid:
        """Run the experiment together with others, which share its search, scheduler and callbacks."""
        tuners = [self, *others]
        for tuner in tuners:
            assert tuner._run_config.checkpoint_config is not None
            check_checkpoint_config(tuner._trainable, tuner._run_config.checkpoint_config)
        if not skate.is_initialized():
            skate.init()
        with contextlib.ExitStack() as stack:
            opened: dict[str, tuple[ExperimentFolder, Recorder]] = {}
            experiments = [each._experiment_settings(opened, stack) for each in tuners]
            settings = self._settings(experiments, tuners)
            trials = self._restored(settings, tuners) if self._resume is not None else []
            self._open_journals(settings, trials, tuners)
            progress = self._add_progress(settings)
            controller = TuneController(settings, trials)
            config = self._tune_config
            describe = RunDescription(controller.get_trials, config.metric, config.mode)
            try:
                name = experiments[0].folder.name
                with tracing.span(f"tune {name}"), recording("tune", name, describe):
                    controller.run()
            finally:
                for each in progress:
                    each.close()
                experiments[0].recorder.save_state(settings.state)
            self._results = self._grid(experiments[0].folder, controller.get_trials())
            if others:
                self._results._experiment_analysis._folders = [each.folder for each in experiments]
        return self._results

    def _open_journals(self, settings: Settings, trials: Sequence[Trial], tuners: Sequence[Tuner]) -> None:
        """Prepare the journals: empty for a new experiment, otherwise with the state of its trials."""
        for experiment, tuner in zip(settings.experiments, tuners, strict=True):
            if self._resume is None:
                experiment.recorder.start()
                tuner._write_settings(experiment.folder)
            else:
                experiment.recorder.restart(
                    [
                        trial
                        for trial in trials
                        if settings.experiments[trial.experiment].recorder is experiment.recorder
                    ]
                )
        settings.experiments[0].recorder.created = len(trials)

    def _add_progress(self, settings: Settings) -> list[Progress]:
        reporter = self._run_config.progress_reporter
        if reporter is None:
            progress = self._progress(settings.experiments[0].folder)
            settings.callbacks = [*settings.callbacks, *progress]
            return progress
        settings.callbacks = [
            *settings.callbacks,
            ReporterCallback(reporter, self._tune_config.metric, self._tune_config.mode),
        ]
        return []

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
        total = samples and samples * count_variants({"config": self._objects.space})
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
        trials = read_trials(folder, folder.read_journal())
        for trial in trials:
            trial.checkpoint_config = self._run_config.checkpoint_config
            use_objects(trial, self._objects)
        return self._grid(folder, trials)

    def _folder(self) -> ExperimentFolder:
        run = self._run_config
        if run.name is None:
            date = (
                "" if os.environ.get(_NO_DATE) == "1" else f"_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
            )
            run.name = f"{self._name}{date}"
        assert run.storage_path is not None
        filesystem, path = folders.locate(run.storage_path, run.storage_filesystem)
        return open_folder(posixpath.join(path, run.name), filesystem)

    def _write_settings(self, folder: ExperimentFolder) -> None:
        config, run = self._tune_config, copy.copy(self._run_config)
        run.storage_filesystem = None  # it may have credentials
        run.callbacks = self._storable_callbacks
        settings = {
            "trainable": self._name,
            # The space is pickled on its own, so that the rest can be read where its objects cannot.
            "parameters": parameters_of(self._param_space),
            "param_space": cloudpickle.dumps(self._param_space),
            "session": session_of_references(self._param_space),
            "tune_config": config,
            "run_config": run,
        }
        folder.write_settings(settings, config.metric, config.mode)

    @functools.cached_property
    def _storable_callbacks(self) -> list[Any]:
        return storable_callbacks(self._run_config.callbacks or [])

    @functools.cached_property
    def _objects(self) -> ObjectTable:
        stored = self._stored_space
        return ObjectTable(self._param_space, None if stored is None else lambda: pickle.loads(stored))

    def _experiment_settings(
        self, opened: dict[str, tuple[ExperimentFolder, Recorder]], stack: contextlib.ExitStack
    ) -> ExperimentSettings:
        """Return the settings of the experiment.

        Args:
            opened: The folders and recorders of other experiments, by path. Those of this one are added.
            stack: Closes the folders and recorders that this call opens.
        """
        run = copy.copy(self._run_config)
        assert run.checkpoint_config is not None
        if run.checkpoint_config.checkpoint_at_end is None:
            run.checkpoint_config = dataclasses.replace(
                run.checkpoint_config, checkpoint_at_end=_saves_checkpoints(self._trainable)
            )
        objects, stopper = self._objects, create_stopper(run.stop, self._tune_config.time_budget_s)
        folder = self._folder()
        if folder.location not in opened:
            writable, uploader = stack.enter_context(open_for_run(folder, run.sync_config))
            recorder = Recorder(writable, uploader)
            stack.callback(recorder.close)
            opened[folder.location] = writable, recorder
        return ExperimentSettings(
            self._trainable,
            lambda configuration: resources_of(self._trainable, configuration),
            stopper,
            run,
            objects,
            *opened[folder.location],
            self._export_formats,
        )

    def _settings(self, experiments: Sequence[ExperimentSettings], tuners: Sequence[Tuner]) -> Settings:
        config = self._tune_config
        scheduler = config.scheduler or FIFOScheduler()
        if not scheduler.set_search_properties(config.metric, config.mode):
            raise ValueError(
                "the scheduler and TuneConfig both have a metric and a mode: set them in one place only."
            )
        return Settings(
            experiments,
            self._search(tuners),
            scheduler,
            metric=config.metric,
            max_concurrent=config.max_concurrent_trials,
            reuse_trainables=bool(config.reuse_actors),
            reuse_workers=config.reuse_actors is not False,
            callbacks=list(self._run_config.callbacks or []),
        )

    def _search(self, tuners: Sequence[Tuner]) -> SearchAlgorithm:
        config = self._tune_config
        given = config.search_alg
        if given is None:
            search: SearchAlgorithm = BasicVariantGenerator(max_concurrent=config.max_concurrent_trials or 0)
        elif isinstance(given, SearchAlgorithm):
            search = given
        else:
            if config.max_concurrent_trials and not isinstance(given, ConcurrencyLimiter):
                given = ConcurrencyLimiter(given, max_concurrent=config.max_concurrent_trials)
            search = SearchGenerator(given)
        search.set_search_properties(config.metric, config.mode, self._objects.space)
        specs = [tuner._spec(index) for index, tuner in enumerate(tuners)]
        search.add_configurations(
            {self._run_config.name or "experiment": specs[0]} if len(specs) == 1 else specs
        )
        return search

    def _spec(self, experiment: int) -> dict[str, Any]:
        """Return the specification of the experiment for a search algorithm.

        Args:
            experiment: The index of the experiment.
        """
        config, run = self._tune_config, self._run_config
        return {
            "experiment": experiment,
            "run": self._name,
            "config": self._objects.space,
            "num_samples": _NO_LIMIT if config.num_samples == -1 else config.num_samples,
            "stop": run.stop if isinstance(run.stop, Mapping) else None,
            "trial_name_creator": config.trial_name_creator,
            "trial_dirname_creator": config.trial_dirname_creator,
            "restore": self._checkpoint,
        }

    # ------------------------------------------------------------ restored trials

    def _restored(self, settings: Settings, tuners: Sequence[Tuner]) -> list[Trial]:
        """Return the trials of the experiments, and continue with the stored search and scheduler."""
        assert self._resume is not None
        trials = read_all_trials(settings, [tuner._name for tuner in tuners])
        with self._objects.loading():
            state = settings.experiments[0].folder.read_state()
        created = 0
        if state is not None:
            settings.search, settings.scheduler = state["search"], state["scheduler"]
            for callback, saved in zip(settings.callbacks, state["callbacks"], strict=False):
                if saved is not None:
                    callback.set_state(saved)
            created = state["created"]
        for _ in trials[created:]:  # the state may be older than the journal: skip trials that exist
            settings.search.next_trial()
        for trial in trials:
            stop = tuners[trial.experiment]._run_config.stop
            trial.stopping_criterion = dict(flat(stop)) if isinstance(stop, Mapping) else {}
            prepare_trial(trial, self._resume)
        return trials


def _saves_checkpoints(trainable: Any) -> bool:
    """Return whether a trainable is a class that defines how checkpoints are saved."""
    return is_trainable_class(trainable) and trainable.save_checkpoint is not Trainable.save_checkpoint
