"""Training with XGBoost, under Ray's path."""

__all__: list[str] = []
