"""The cloudpickle that Skate uses, under Ray's name for it."""

from cloudpickle import *  # noqa: F403 - this module re-exports all names
from cloudpickle import CloudPickler, Pickler, dump, dumps, load, loads

__all__ = ["CloudPickler", "Pickler", "dump", "dumps", "load", "loads"]
