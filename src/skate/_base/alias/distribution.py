"""The metadata of `ray` for packages that ask `importlib.metadata` for its version when Ray is not installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path
from typing import Any

from skate._base.alias import names


class RayDistribution(Distribution):
    """The distribution `ray`, in the version whose API Skate follows."""

    def read_text(self, filename: str) -> str | None:
        """Return the text of a metadata file, if it exists."""
        version = importlib.import_module(names.VERSIONS).ray_version
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\nSummary: Skate, in Ray's place\n",
            "top_level.txt": "ray\n",
        }
        return files.get(filename)

    def locate_file(self, path: Any) -> Path:
        """Return the location that a file of the distribution would have."""
        home: str = importlib.import_module(names.SKATE).__path__[0]
        return Path(home).parent / str(path)


def find_substitute(context: DistributionFinder.Context | None) -> Iterator[Distribution]:
    """Yield the distribution if it is requested and Ray is not installed."""
    wanted = getattr(context, "name", None)
    if wanted is not None and wanted.lower() != names.RAY:
        return
    installed = MetadataPathFinder.find_distributions(DistributionFinder.Context(name=names.RAY))
    if next(iter(installed), None) is None:
        yield RayDistribution()
