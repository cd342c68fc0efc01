"""Reading environment variables, for the libraries: see `skate._base.variables`."""

from skate._base.variables import flag, integer, number, text

__all__ = ["flag", "integer", "number", "text"]
