"""Ray's paths to the current API: the names of `skate.train`."""

__all__: list[str] = []
