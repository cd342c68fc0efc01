"""Experimental request routers, each in its own module."""

__all__: list[str] = []
