"""The joblib backend, which runs calls in a `skate.util.multiprocessing.Pool`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from joblib.parallel import (
    AutoBatchingMixin,
    BatchedCalls,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

import skate
from skate.util.joblib._sharing import SharedArguments
from skate.util.multiprocessing import Pool
from skate.util.multiprocessing.pool import AsyncResult

__all__ = ["RayBackend"]

# Maximum depth of nested `Parallel` calls that get their own processes, because each level multiplies the number of
# processes.
_DEEPEST_PARALLEL_LEVEL = 1
_DEFAULT_MAX_NBYTES = 1 << 20  # joblib's default


class _Result(NamedTuple):
    value: Any
    error: Exception | None


class RayBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Run joblib's calls on Skate. Selected by name: see `register_ray`.

    Args:
        nesting_level: Number of enclosing `Parallel` calls. Set by joblib.
        inner_max_num_threads: Maximum number of threads of libraries such as OpenBLAS per process.
        ray_remote_args: Options of the processes, which are actors, as in `Actor.options(...)`.
        **kwargs: Options that joblib passes for other backends; ignored.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **kwargs)
        self.ray_remote_args = ray_remote_args
        self._pool: Pool | None = None
        self._shared: SharedArguments | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of processes for `n_jobs`; negative values count back from the number of CPUs."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0 and not skate.is_initialized():
            skate.init()
        if not skate.is_initialized():
            return n_jobs  # the pool starts a session of this size
        cpus = max(1, int(skate.cluster_resources().get("CPU", 1)))
        return min(n_jobs, cpus) if n_jobs > 0 else max(cpus + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
        max_nbytes: int | None = _DEFAULT_MAX_NBYTES,
        **kwargs: Any,
    ) -> int:
        """Start the processes and return their number."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        options = self._with_thread_limit({**(self.ray_remote_args or {}), **(ray_remote_args or {})}, n_jobs)
        self._pool = Pool(n_jobs, ray_remote_args=options)
        self._shared = None if max_nbytes is None else SharedArguments(max_nbytes)
        self.parallel = parallel
        return n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Callable[[_Result], object] | None = None
    ) -> AsyncResult:
        """Run a batch of calls in one of the processes. Called by joblib."""
        assert self._pool is not None, "joblib must configure a backend before it submits"
        if self._shared is not None and isinstance(func, BatchedCalls):
            calls = [self._shared.replace(call) for call in func.items]
            func = BatchedCalls(calls, (func._backend, func._n_jobs))
        if callback is None:
            return self._pool.apply_async(func)
        return self._pool.apply_async(
            func,
            callback=lambda value: callback(_Result(value, None)),
            error_callback=lambda error: callback(_Result(None, error)),
        )

    def retrieve_result_callback(self, out: _Result) -> Any:
        """Return the result of a batch, or raise its exception. Called by joblib."""
        if out.error is not None:
            raise out.error
        return out.value

    def terminate(self) -> None:
        """Stop the processes."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None
        self._shared = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop busy processes, and start new ones if more calls follow."""
        self.terminate()
        if ensure_ready:
            self.configure(
                n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs
            )

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Return the backend of a nested `Parallel`: processes again, then a sequential backend further down."""
        level = (self.nesting_level or 0) + 1
        if level > _DEEPEST_PARALLEL_LEVEL:
            return SequentialBackend(nesting_level=level), None
        # Without `ray_remote_args`: the outer processes may hold all of the requested resources.
        return RayBackend(nesting_level=level), None

    def __getstate__(self) -> dict[str, Any]:
        # A nested backend is sent with every batch, without the state of this process.
        return {**self.__dict__, "_pool": None, "_shared": None, "parallel": None}

    def _with_thread_limit(self, options: dict[str, Any], n_jobs: int) -> dict[str, Any]:
        if self.inner_max_num_threads is None:
            return options
        runtime_env = dict(options.get("runtime_env") or {})
        limits = self._prepare_worker_env(n_jobs)
        runtime_env["env_vars"] = {**limits, **runtime_env.get("env_vars", {})}
        return {**options, "runtime_env": runtime_env}
