"""Stand-in for `ray.data._internal.execution`."""
