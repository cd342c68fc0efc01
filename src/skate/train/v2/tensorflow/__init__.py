"""Training with TensorFlow, under Ray's path."""

__all__: list[str] = []
