"""Hyper-parameter search: trials of a trainable over a search space."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.air.config import SyncConfig
    from skate.train import Checkpoint
    from skate.tune._experiment.trial_result import Result
    from skate.tune.analysis import ExperimentAnalysis
    from skate.tune.callback import Callback
    from skate.tune.context import TuneContext, get_context
    from skate.tune.error import TuneError
    from skate.tune.execution.placement_groups import PlacementGroupFactory
    from skate.tune.experiment import Experiment
    from skate.tune.impl.config import CheckpointConfig, FailureConfig, RunConfig
    from skate.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from skate.tune.registry import register_env, register_trainable
    from skate.tune.result_grid import ResultGrid
    from skate.tune.schedulers import create_scheduler
    from skate.tune.search import create_searcher, grid_search
    from skate.tune.search.sample import (
        choice,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )
    from skate.tune.stopper import Stopper
    from skate.tune.trainable import Trainable, with_parameters, with_resources
    from skate.tune.trainable.trainable_fn_utils import get_checkpoint, report
    from skate.tune.tune import run, run_experiments
    from skate.tune.tune_config import ResumeConfig, TuneConfig
    from skate.tune.tuner import Tuner

# Names are imported at their first use: the workers of trials need few of them, and trials wait for the workers.
_HOMES = {
    "skate.air.config": ("SyncConfig",),
    "skate.train": ("Checkpoint",),
    "skate.tune._experiment.trial_result": ("Result",),
    "skate.tune.analysis": ("ExperimentAnalysis",),
    "skate.tune.callback": ("Callback",),
    "skate.tune.context": ("TuneContext", "get_context"),
    "skate.tune.error": ("TuneError",),
    "skate.tune.execution.placement_groups": ("PlacementGroupFactory",),
    "skate.tune.experiment": ("Experiment",),
    "skate.tune.impl.config": ("CheckpointConfig", "FailureConfig", "RunConfig"),
    "skate.tune.progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "skate.tune.registry": ("register_env", "register_trainable"),
    "skate.tune.result_grid": ("ResultGrid",),
    "skate.tune.schedulers": ("create_scheduler",),
    "skate.tune.search": ("create_searcher", "grid_search"),
    "skate.tune.search.sample": (
        *("choice", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint"),
        *("qrandn", "quniform", "randint", "randn", "sample_from", "uniform"),
    ),
    "skate.tune.stopper": ("Stopper",),
    "skate.tune.trainable": ("Trainable", "with_parameters", "with_resources"),
    "skate.tune.trainable.trainable_fn_utils": ("get_checkpoint", "report"),
    "skate.tune.tune": ("run", "run_experiments"),
    "skate.tune.tune_config": ("ResumeConfig", "TuneConfig"),
    "skate.tune.tuner": ("Tuner",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = frozenset(
    (
        *("analysis", "callback", "context", "error", "execution", "experiment", "impl", "integration"),
        *("logger", "progress_reporter", "registry", "result", "result_grid", "schedulers", "search"),
        *("stopper", "syncer", "trainable", "tune", "tune_config", "tuner", "utils"),
    )
)

__all__ = [
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "Experiment",
    "ExperimentAnalysis",
    "FailureConfig",
    "JupyterNotebookReporter",
    "PlacementGroupFactory",
    "ProgressReporter",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Stopper",
    "SyncConfig",
    "Trainable",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "uniform",
    "with_parameters",
    "with_resources",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
