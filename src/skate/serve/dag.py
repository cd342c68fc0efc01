"""The input node of a graph, under Ray Serve's path."""

from skate.dag import InputNode

__all__ = ["InputNode"]
