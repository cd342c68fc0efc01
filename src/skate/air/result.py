"""The result of a run, under an older path of Ray's."""

from skate.train import Result

__all__ = ["Result"]
