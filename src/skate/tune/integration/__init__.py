"""Callbacks of training libraries that report to Tune: `pytorch_lightning`, `xgboost`, `lightgbm`, and `ray_train`."""

__all__: list[str] = []  # import the module of the library
