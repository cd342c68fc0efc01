"""Metadata of files: which files a path stands for, and how large they are, where a user knows it better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.fs as pafs

from skate.data._io import paths as file_paths
from skate.data.block import BlockMetadata
from skate.data.datasource.partitioning import Partitioning

__all__ = ["BaseFileMetadataProvider", "DefaultFileMetadataProvider", "FileMetadataProvider"]


class FileMetadataProvider:
    """Tell what is known of files before they are read."""

    def _get_block_metadata(self, paths: list[str], **kwargs: Any) -> BlockMetadata:
        raise NotImplementedError(f"{type(self).__name__} has to define _get_block_metadata(paths, **kwargs)")

    def __call__(self, paths: list[str], **kwargs: Any) -> BlockMetadata:
        """Return what is known of files that one task reads."""
        return self._get_block_metadata(paths, **kwargs)


class BaseFileMetadataProvider(FileMetadataProvider):
    """Derive from this, and pass it as `meta_provider=` to a reader, to list files yourself."""

    def expand_paths(
        self,
        paths: list[str],
        filesystem: pafs.FileSystem | None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
    ) -> Iterator[tuple[str, int | None]]:
        """Yield the files that paths stand for, each with its size in bytes, or None.

        Args:
            paths: Files and folders, as the filesystem wants them.
            filesystem: Where they are.
            partitioning: What the names of folders tell.
            ignore_missing_paths: Leave out paths that are not there.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define expand_paths(paths, filesystem)")


class DefaultFileMetadataProvider(BaseFileMetadataProvider):
    """List files as readers do without a provider: folders with all that is in them, globs, and single files.

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
        """Yield the files that paths stand for, each with its size in bytes; None where a store does not say."""
        found, resolved = file_paths.resolve_all(paths, filesystem)
        for file in file_paths.expand(resolved, found, ignore_missing=ignore_missing_paths):
            yield file.path, file.size
