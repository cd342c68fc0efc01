"""The cloudpickle that Skate uses, under the name that Ray's users import."""

from cloudpickle import *  # noqa: F403 - the point is to offer all of it
from cloudpickle import CloudPickler, Pickler, dump, dumps, load, loads

__all__ = ["CloudPickler", "Pickler", "dump", "dumps", "load", "loads"]
