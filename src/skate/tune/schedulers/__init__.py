"""Schedulers, which decide which trials run, pause and stop."""

from skate.tune.schedulers._registry import create_scheduler
from skate.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from skate.tune.schedulers.hb_bohb import HyperBandForBOHB
from skate.tune.schedulers.hyperband import HyperBandScheduler
from skate.tune.schedulers.median_stopping_rule import MedianStoppingRule
from skate.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from skate.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler
from skate.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]
