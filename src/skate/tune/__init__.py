"""Hyper-parameter search: trials of a trainable over a search space."""

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
