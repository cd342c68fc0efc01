"""Trainables: functions and classes that Tune runs."""

from skate.tune.trainable.trainable import Trainable
from skate.tune.trainable.util import with_parameters, with_resources

__all__ = ["Trainable", "with_parameters", "with_resources"]
