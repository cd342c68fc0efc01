"""The result of a run, under Ray's path."""

from skate.train._storage.result import Result

__all__ = ["Result"]
