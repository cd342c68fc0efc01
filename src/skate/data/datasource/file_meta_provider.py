"""Providers of file metadata: the files that a path refers to, and their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.fs as pafs

from skate.data._io import paths as file_paths
from skate.data.block import BlockMetadata
from skate.data.datasource.partitioning import Partitioning

__all__ = ["BaseFileMetadataProvider", "DefaultFileMetadataProvider", "FileMetadataProvider"]


class FileMetadataProvider:
    """Base class of providers of file metadata."""

    def _get_block_metadata(self, paths: list[str], **kwargs: Any) -> BlockMetadata:
        raise NotImplementedError(f"{type(self).__name__} must define _get_block_metadata(paths, **kwargs)")

    def __call__(self, paths: list[str], **kwargs: Any) -> BlockMetadata:
        """Return the metadata of the files that one task reads."""
        return self._get_block_metadata(paths, **kwargs)


class BaseFileMetadataProvider(FileMetadataProvider):
    """Base class of custom providers, which are passed to readers as `meta_provider=`."""

    def expand_paths(
        self,
        paths: list[str],
        filesystem: pafs.FileSystem | None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
    ) -> Iterator[tuple[str, int | None]]:
        """Yield the files that paths refer to, each with its size in bytes, or None.

        Args:
            paths: Files and folders, in the form that the filesystem expects.
            filesystem: The filesystem.
            partitioning: The partitioning of the folders.
            ignore_missing_paths: Skip paths that do not exist.
        """
        raise NotImplementedError(f"{type(self).__name__} must define expand_paths(paths, filesystem)")


class DefaultFileMetadataProvider(BaseFileMetadataProvider):
    """List files as readers do by default: folders recursively, globs, and single files.

    >>> provider = DefaultFileMetadataProvider()
    >>> provider(["a.csv", "b.csv"], rows_per_file=1, file_sizes=[10, 20]).size_bytes
    30
    """

    def _get_block_metadata(
        self,
        paths: list[str],
        *,
        rows_per_file: int | None = None,
        file_sizes: Sequence[int | None] = (),
        **_: Any,
    ) -> BlockMetadata:
        known = [size for size in file_sizes if size is not None]
        return BlockMetadata(
            num_rows=None if rows_per_file is None else rows_per_file * len(paths),
            size_bytes=sum(known) if len(known) == len(paths) else None,
            input_files=paths,
        )

    def expand_paths(
        self,
        paths: list[str],
        filesystem: pafs.FileSystem | None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
    ) -> Iterator[tuple[str, int | None]]:
        """Yield the files that paths refer to, each with its size in bytes; None if it is unknown."""
        found, resolved = file_paths.resolve_all(paths, filesystem)
        for file in file_paths.expand(resolved, found, ignore_missing=ignore_missing_paths):
            yield file.path, file.size
