"""Trials, and the experiments they belong to."""

from skate.tune.experiment.experiment import Experiment
from skate.tune.experiment.trial import Trial

__all__ = ["Experiment", "Trial"]
