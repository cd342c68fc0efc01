"""Rules that stop trials, or the whole experiment."""

from skate.tune.stopper.experiment_plateau import ExperimentPlateauStopper
from skate.tune.stopper.function_stopper import FunctionStopper
from skate.tune.stopper.maximum_iteration import MaximumIterationStopper
from skate.tune.stopper.noop import NoopStopper
from skate.tune.stopper.stopper import CombinedStopper, Stopper
from skate.tune.stopper.timeout import TimeoutStopper
from skate.tune.stopper.trial_plateau import TrialPlateauStopper

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]
