"""A process pool with the interface of `multiprocessing.Pool`, made of actors."""

from multiprocessing import JoinableQueue, TimeoutError

from skate.util.multiprocessing import pool
from skate.util.multiprocessing.pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError", "pool"]
