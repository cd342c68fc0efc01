"""Datasources and datasinks, from which datasets are read and to which they are written."""

from __future__ import annotations

from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult, WriteReturnType
from skate.data.datasource.datasource import Datasource, ReadTask
from skate.data.datasource.file_based_datasource import FileBasedDatasource, FileShuffleConfig
from skate.data.datasource.file_datasink import BlockBasedFileDatasink, RowBasedFileDatasink
from skate.data.datasource.file_meta_provider import (
    BaseFileMetadataProvider,
    DefaultFileMetadataProvider,
    FileMetadataProvider,
)
from skate.data.datasource.filename_provider import FilenameProvider
from skate.data.datasource.legacy import Reader
from skate.data.datasource.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)
from skate.data.datasource.savemode import SaveMode

from skate.data._io.lerobot import LeRobotDatasource  # isort: skip
from skate.data._io.mcap import MCAPDatasource, TimeRange  # isort: skip - derives from a class of this package

__all__ = [
    "BaseFileMetadataProvider",
    "BlockBasedFileDatasink",
    "Datasink",
    "Datasource",
    "DefaultFileMetadataProvider",
    "FileBasedDatasource",
    "FileMetadataProvider",
    "FileShuffleConfig",
    "FilenameProvider",
    "LeRobotDatasource",
    "MCAPDatasource",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "ReadTask",
    "Reader",
    "RowBasedFileDatasink",
    "SaveMode",
    "TaskContext",
    "TimeRange",
    "WriteResult",
    "WriteReturnType",
]
