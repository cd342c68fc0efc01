"""The input of a graph, under the path that programs written for Ray Serve import it from."""

from skate.dag import InputNode

__all__ = ["InputNode"]
