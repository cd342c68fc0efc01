"""Settings of datasets and of their execution."""

from __future__ import annotations

import copy
import enum
import threading
import warnings
from dataclasses import dataclass, field, fields
from typing import Any

from skate._api import variables
from skate.data._arguments import NON_NEGATIVE, POSITIVE, Range, check_attribute
from skate.data._block.tensor_formats import FixedShapeTensorFormat
from skate.data._execution_options import ExecutionOptions
from skate.data.checkpoint.interfaces import CheckpointConfig, config_of
from skate.util.annotations import RayDeprecationWarning

__all__ = ["DataContext", "DatasetContext", "ShuffleStrategy"]

MIB = 1024 * 1024
DEFAULT_MAX_BLOCK_SIZE = 32 * MIB  # also the expected size of blocks that have no maximum


class ShuffleStrategy(enum.StrEnum):
    """How rows with equal keys are brought together. Accepted as in Ray; Skate chooses by size."""

    HASH_SHUFFLE = "hash_shuffle"
    SORT_SHUFFLE_PULL_BASED = "sort_shuffle_pull_based"
    SORT_SHUFFLE_PUSH_BASED = "sort_shuffle_push_based"
    GPU_SHUFFLE = "gpu_shuffle"
    SHUFFLE_V2 = "shuffle_v2"
    HASH_SHUFFLE_V2 = SHUFFLE_V2  # an older name

    @classmethod
    def _missing_(cls, value: object) -> ShuffleStrategy | None:
        if value != "hash_shuffle_v2":
            return None
        warnings.warn("hash_shuffle_v2 is an older name of shuffle_v2", DeprecationWarning, stacklevel=3)
        return cls.SHUFFLE_V2


# Fragments of the messages of transient storage errors.
TRANSIENT_IO_ERRORS = (
    "AWS Error INTERNAL_FAILURE",
    "AWS Error NETWORK_CONNECTION",
    "AWS Error SLOW_DOWN",
    "AWS Error UNKNOWN (HTTP status 503)",
    "AWS Error SERVICE_UNAVAILABLE",
)

# Settings for parts of Ray's engine that Skate lacks: they can be set and read, but have no effect.
_IGNORED_SETTINGS: dict[str, Any] = {
    "actor_prefetcher_enabled": False,
    "arrow_fixed_shape_tensor_format": FixedShapeTensorFormat.V2,
    "accurate_map_phase_timing": False,
    "batch_to_block_arrow_format": True,
    "custom_execution_callback_classes": [],
    "decoding_size_estimation": True,
    "default_map_logical_memory_enabled": False,
    "enable_dynamic_output_queue_size_backpressure": False,
    "enable_progress_bar_name_truncation": True,
    "enable_stats_summary_collection": False,
    "enforce_schemas": False,
    "enable_lineage_reconstruction_resource_accounting": True,
    "gpu_shuffle_num_actors": None,
    "gpu_shuffle_rmm_pool_size": None,
    "gpu_shuffle_setup_timeout_s": 120.0,
    "gpu_shuffle_spill_memory_limit": "auto",
    "hash_aggregate_operator_actor_num_cpus_override": None,
    "hash_shuffle_aggregator_health_warning_interval_s": 30,
    "hash_shuffle_compression": "zstd",
    "hash_shuffle_operator_actor_num_cpus_override": None,
    "hash_shuffle_reduce_batch_size": 16,
    "hash_shuffle_reduce_get_timeout_s": 1800.0,
    "join_operator_actor_num_cpus_override": None,
    "max_hash_shuffle_aggregators": None,
    "max_hash_shuffle_finalization_batch_size": None,
    "memory_usage_poll_interval_s": 1,
    "min_hash_shuffle_aggregator_wait_time_in_s": 300,
    "object_store_memory_pressure_fraction": None,
    "object_store_reservation_overshoot_ratio": None,
    "output_backpressure_guard_release_interval_s": None,
    "override_object_store_memory_limit_fraction": None,
    "pandas_block_ignore_metadata": False,
    "per_stage_map_timing": False,
    "s3_try_create_dir": False,
    "shuffle_compression": "zstd",
    "shuffle_input_batch_bytes": 1024 * MIB,
    "use_disk_based_hash_shuffle": False,
    "default_hash_shuffle_parallelism": 200,
    "downstream_capacity_backpressure_ratio": None,
    "enable_auto_log_stats": False,
    "enable_get_object_locations_for_metrics": False,
    "enable_pandas_block": False,
    "enable_per_node_metrics": False,
    "enable_rich_progress_bars": True,
    "enable_tensor_extension_casting": True,
    "execution_no_progress_timeout_s": None,
    "isolate_read_workers": False,
    "large_args_threshold": 50 * MIB,
    "log_internal_stack_trace_to_stdout": False,
    "op_resource_reservation_enabled": True,
    "op_resource_reservation_ratio": 0.5,
    "optimize_fuse_stages": True,
    "pipeline_push_based_shuffle_reduce_tasks": True,
    "print_on_execution_start": True,
    "scheduling_strategy": "SPREAD",
    "scheduling_strategy_large_args": "DEFAULT",
    "shuffle_strategy": ShuffleStrategy.HASH_SHUFFLE,
    "streaming_read_buffer_size": 32 * MIB,
    "trace_allocations": False,
    "use_arrow_tensor_v2": True,
    "use_datasource_v2": True,
    "use_legacy_dataset_ids": False,
    "use_polars": True,
    "use_polars_sort": True,
    "use_push_based_shuffle": False,
    "use_ray_tqdm": True,
    "use_streaming_executor": True,
    "verbose_stats_logs": False,
    "wait_for_min_actors_s": -1,
    "warn_on_driver_memory_usage_bytes": 2 * 1024 * MIB,
}

# Valid numbers of settings.
_RANGES = {
    "target_max_block_size": POSITIVE,
    "target_min_block_size": NON_NEGATIVE,
    "memory_budget": POSITIVE,
    "small_plan_bytes": Range(least=-1),
    "relational_plan_bytes": Range(least=-1),
    "partition_bytes": POSITIVE,
    "read_op_min_num_blocks": POSITIVE,
    "min_parallelism": POSITIVE,
    "max_tasks_in_flight_per_actor": POSITIVE,
    "max_errored_blocks": Range(least=-1),
    "max_map_retries": Range(least=-1),
    "actor_init_max_retries": Range(least=-1),
    "max_consecutive_actor_init_deaths": Range(least=-1),
}

# Settings for which Ray warns when they are set, and the remedy.
_DEPRECATED = {
    "write_file_retry_on_errors": "set retried_io_errors",
    "scheduling_strategy": "pass scheduling_strategy to the methods, in ray_remote_args",
    "scheduling_strategy_large_args": "pass scheduling_strategy to the methods, in ray_remote_args",
    "large_args_threshold": "pass scheduling_strategy to the methods, in ray_remote_args",
}


def _shows_progress() -> bool:
    return not variables.flag("DATA_DISABLE_PROGRESS_BARS", False)


def _min_parallelism() -> int | None:
    return variables.integer("DATA_DEFAULT_MIN_PARALLELISM", 0, at_least=0) or None


@dataclass
class DataContext:
    """Settings that a dataset captures when it is created.

    `DataContext.get_current()` returns the settings for new datasets of this process. In functions that a dataset
    calls, it returns the settings of that dataset.

    Attributes:
        target_max_block_size: Maximum size of blocks in bytes; None leaves blocks unchanged.
        target_min_block_size: Size in bytes below which a source is not divided further.
        execution_options: Resource limits, and whether order is preserved.
        memory_budget: Maximum size of the blocks of a running plan in bytes; None derives it from the machine.
        small_plan_bytes: A plan with sources of up to this size in bytes runs in this process; in a session, one that
            only reads local files and maps their rows begins there with sources of up to 32 times this size.
        relational_plan_bytes: A plan that sorts, groups, joins or shuffles and calls no user-defined function runs on
            threads of this process, if its sources have up to this size in bytes.
        partition_bytes: Size of the rows that one task sorts, groups or joins, in bytes.
        read_op_min_num_blocks: Minimum number of parts to read, if the source can be divided; None chooses.
        max_tasks_in_flight_per_actor: Maximum number of tasks per actor at a time; None means two.
        max_errored_blocks: Number of tasks that may fail before the job fails; -1 means any number.
        retried_io_errors: Fragments of messages of errors after which reads and writes are retried.
        retried_map_errors: Fragments of messages, or regular expressions: user-defined functions that raise such an
            error are called again with the same rows. True names all errors.
        max_map_retries: Maximum number of these calls for the same rows; -1 means any number.
        actor_task_retry_on_errors: Types of errors after which instances of classes are called again, any number of
            times; True names all errors.
        actor_init_retry_on_errors: Whether a class is constructed again, in the same process, if its constructor raises
            an error.
        actor_init_max_retries: Maximum number of these attempts after the first one; -1 means any number.
        max_consecutive_actor_init_deaths: Number of actors of an operator that may fail or die while they start, one
            after another, before the job fails; -1 means any number. Each is replaced by a new one.
        raise_original_map_exception: Raise the exception of user code, instead of an error that adds its location.
        enable_arrow_backed_pandas_conversion: Let `Dataset.to_pandas` return Arrow-backed dtypes, which support nulls,
            instead of NumPy dtypes. Rows that a program passed as a DataFrame keep its dtypes.
        enable_progress_bars: Show progress on a terminal, unless RAY_DATA_DISABLE_PROGRESS_BARS is 1.
        checkpoint_config: The id column and the location for recording written rows: a `CheckpointConfig`, or a dict
            of its arguments.
    """

    target_max_block_size: int | None = DEFAULT_MAX_BLOCK_SIZE
    target_min_block_size: int = 1 * MIB
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    memory_budget: int | None = None
    small_plan_bytes: int = 4 * MIB
    relational_plan_bytes: int = 512 * MIB
    partition_bytes: int = 512 * MIB
    read_op_min_num_blocks: int | None = None
    min_parallelism: int | None = field(default_factory=_min_parallelism)
    max_tasks_in_flight_per_actor: int | None = None
    max_errored_blocks: int = 0
    max_map_retries: int = 0
    raise_original_map_exception: bool = False
    log_internal_stack_trace: bool = False
    enable_arrow_backed_pandas_conversion: bool = True
    enable_progress_bars: bool = field(default_factory=_shows_progress)
    enable_operator_progress_bars: bool = True
    enable_fallback_to_arrow_object_ext_type: bool | None = None
    retried_io_errors: list[str] = field(default_factory=lambda: list(TRANSIENT_IO_ERRORS))
    retried_map_errors: bool | list[str] = field(default_factory=list)
    write_file_retry_on_errors: list[str] = field(default_factory=list)
    actor_task_retry_on_errors: bool | list[type[BaseException]] = False
    actor_init_retry_on_errors: bool = False
    actor_init_max_retries: int = 3
    max_consecutive_actor_init_deaths: int = 0
    checkpoint_config: CheckpointConfig | None = None
    dataset_logger_id: str | None = None

    def __post_init__(self) -> None:
        self._kv_configs: dict[str, Any] = {}
        for name, value in _IGNORED_SETTINGS.items():
            setattr(self, name, copy.copy(value))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _IGNORED_SETTINGS and name != "checkpoint_config":  # `config_of` checks it
            check_attribute(self, name, value, _RANGES.get(name))
        if name in _DEPRECATED and name in vars(self):
            warnings.warn(
                f"DataContext.{name} is deprecated in Ray: {_DEPRECATED[name]}",
                RayDeprecationWarning,
                stacklevel=2,
            )
        super().__setattr__(name, config_of(value) if name == "checkpoint_config" else value)

    @staticmethod
    def get_current() -> DataContext:
        """Return the settings for new datasets; in functions that a dataset calls, those of the dataset."""
        global _current
        here: DataContext | None = getattr(_of_thread, "context", None)
        if here is not None:
            return here
        with _lock:
            if _current is None:
                _current = DataContext()
            return _current

    @staticmethod
    def _set_current(context: DataContext) -> None:
        global _current
        with _lock:
            _current = context

    @classmethod
    def current(cls, context: DataContext) -> Any:
        """Return a context manager in which `get_current` returns these settings, in this thread."""
        return _Current(context)

    def get_config(self, key: str, default: Any = None) -> Any:
        """Return a value stored with `set_config`."""
        return self._kv_configs.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Store a value for functions that a dataset calls."""
        self._kv_configs[key] = value

    def remove_config(self, key: str) -> None:
        """Remove a value stored with `set_config`."""
        self._kv_configs.pop(key, None)

    def copy(self) -> DataContext:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataContext) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        return f"DataContext({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class _Current:
    def __init__(self, context: DataContext) -> None:
        self._context = context
        self._before: DataContext | None = None

    def __enter__(self) -> DataContext:
        # Per thread: several threads of this process may execute plans at the same time.
        self._before = getattr(_of_thread, "context", None)
        _of_thread.context = self._context
        return self._context

    def __exit__(self, *_: object) -> None:
        _of_thread.context = self._before


_current: DataContext | None = None
_lock = threading.Lock()
_of_thread = threading.local()


# An older name.
DatasetContext = DataContext
