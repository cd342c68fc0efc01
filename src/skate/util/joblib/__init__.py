"""Joblib backend that runs calls, and therefore scikit-learn, in Skate's processes."""

from skate.util.joblib._registration import register_ray

__all__ = ["register_ray"]
