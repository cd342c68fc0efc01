"""Reading environment variables, for the libraries: see `skate._base.variables`."""

from skate._base.variables import PREFIXES, cache_folder, flag, integer, number, text

__all__ = ["PREFIXES", "cache_folder", "flag", "integer", "number", "text"]
