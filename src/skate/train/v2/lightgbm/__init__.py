"""Training with LightGBM, under Ray's path."""

__all__: list[str] = []
