"""Data: read, transform, shuffle and feed rows of any size, on one machine or a cluster.

>>> import skate
>>> skate.data.range(4).map(lambda row: {"square": row["id"] ** 2}).take_all()
[{'square': 0}, {'square': 1}, {'square': 4}, {'square': 9}]
"""

from skate.data import _extra as _extra
from skate.data._compute import ActorPoolStrategy, TaskPoolStrategy
from skate.data._exec_options import ExecutionOptions, ExecutionResources
from skate.data._mixing import MixStoppingCondition
from skate.data._seeds import RandomSeedConfig
from skate.data.context import DataContext
from skate.data.dataset import Dataset, Schema
from skate.data.datasource import (
    BlockBasedFileDatasink,
    Datasink,
    Datasource,
    FileShuffleConfig,
    ReadTask,
    RowBasedFileDatasink,
    SaveMode,
)
from skate.data.extensions import ArrowTensorType, ArrowVariableShapedTensorType
from skate.data.iterator import DataIterator, DatasetIterator
from skate.data.preprocessor import Preprocessor
from skate.data.read_api import (
    from_arrow,
    from_arrow_refs,
    from_blocks,
    from_daft,
    from_dask,
    from_huggingface,
    from_items,
    from_mars,
    from_modin,
    from_numpy,
    from_numpy_refs,
    from_pandas,
    from_pandas_refs,
    from_polars,
    from_spark,
    from_tf,
    from_torch,
    range,
    range_tensor,
    read_arrow,
    read_audio,
    read_avro,
    read_bigquery,
    read_binary_files,
    read_csv,
    read_datasource,
    read_delta,
    read_iceberg,
    read_images,
    read_json,
    read_lance,
    read_mcap,
    read_mongo,
    read_numpy,
    read_orc,
    read_parquet,
    read_sql,
    read_text,
    read_tfrecords,
    read_videos,
    read_webdataset,
    read_zarr,
)
from skate.data.stats import DatasetSummary

__all__ = [
    "ActorPoolStrategy",
    "ArrowTensorType",
    "ArrowVariableShapedTensorType",
    "BlockBasedFileDatasink",
    "DataContext",
    "DataIterator",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "DatasetSummary",
    "Datasink",
    "Datasource",
    "ExecutionOptions",
    "ExecutionResources",
    "FileShuffleConfig",
    "MixStoppingCondition",
    "Preprocessor",
    "RandomSeedConfig",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "Schema",
    "TaskPoolStrategy",
    "from_arrow",
    "from_arrow_refs",
    "from_blocks",
    "from_daft",
    "from_dask",
    "from_huggingface",
    "from_items",
    "from_mars",
    "from_modin",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "from_polars",
    "from_spark",
    "from_tf",
    "from_torch",
    "range",
    "range_tensor",
    "read_arrow",
    "read_audio",
    "read_avro",
    "read_bigquery",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_delta",
    "read_iceberg",
    "read_images",
    "read_json",
    "read_lance",
    "read_mcap",
    "read_mongo",
    "read_numpy",
    "read_orc",
    "read_parquet",
    "read_sql",
    "read_text",
    "read_tfrecords",
    "read_videos",
    "read_webdataset",
    "read_zarr",
]

# Older names.
DatasetContext = DataContext

# The type of a node's id, as `locality_hints` has it; it is `str` and has no page of its own.
NodeIdStr = str
