"""Ray's paths to the current API: what stands here is what stands in `skate.train`."""

__all__: list[str] = []
