"""Reading environment variables, for the libraries: see `skate._base.variables`."""

from skate._base.variables import cache_folder, flag, integer, number, text

__all__ = ["cache_folder", "flag", "integer", "number", "text"]
