"""Helpers for programs that use Tune."""

from skate.tune.utils.util import (
    date_str,
    diagnose_serialization,
    flatten_dict,
    validate_save_restore,
    wait_for_gpu,
    warn_if_slow,
)

__all__ = [
    "date_str",
    "diagnose_serialization",
    "flatten_dict",
    "validate_save_restore",
    "wait_for_gpu",
    "warn_if_slow",
]
