"""Registration of the backend with joblib."""

from __future__ import annotations

__all__ = ["register_ray"]


def register_ray() -> None:
    """Register the backend under the names "ray" and "skate", for `joblib.parallel_backend`.

    Registration starts no session; the first parallel call does, if none is running.

    Raises:
        ImportError: If joblib is not installed.

    Example:
        >>> import joblib
        >>> register_ray()
        >>> with joblib.parallel_backend("skate", n_jobs=2):
        ...     joblib.Parallel()(joblib.delayed(pow)(x, 2) for x in range(4))
        [0, 1, 4, 9]
    """
    try:
        from joblib import register_parallel_backend
    except ImportError as error:
        raise ImportError("skate.util.joblib needs joblib: pip install joblib") from error
    from skate.util.joblib.ray_backend import RayBackend

    for name in ("ray", "skate"):
        register_parallel_backend(name, RayBackend)
