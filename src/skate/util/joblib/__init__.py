"""Run joblib, and so scikit-learn, on Skate's processes."""

from skate.util.joblib._registration import register_ray

__all__ = ["register_ray"]
