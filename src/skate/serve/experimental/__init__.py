"""Request routers that are still finding their shape: each in a module of its own."""

__all__: list[str] = []
