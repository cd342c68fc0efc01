"""Tables that readers and writers find through a catalog."""

from __future__ import annotations

from typing import Any


def resolve_table(catalog: Any, table: Any, reader: str, mode: str = "read") -> Any:
    """Return where a catalog has a table.

    Args:
        catalog: A `Catalog`.
        table: The name of the table.
        reader: The `ReaderFormat` of the reader or writer.
        mode: The `CatalogAccessMode`.

    Raises:
        TypeError: `table` is not the name of one table.
    """
    from skate.data.catalog import CatalogAccessMode, ReaderFormat

    if not isinstance(table, str):
        raise TypeError(f"with a catalog, the path is the name of one table, not {table!r}")
    return catalog.resolve(table, reader=ReaderFormat(reader), mode=CatalogAccessMode(mode))


def resolve_iceberg_table(
    catalog: Any, table: str, catalog_kwargs: dict[str, Any] | None, mode: str = "read"
) -> tuple[str, dict[str, Any] | None]:
    """Return the identifier and the catalog arguments with which pyiceberg finds a table of a catalog.

    Raises:
        ValueError: Arguments of another catalog are given too.
    """
    if catalog_kwargs is not None:
        raise ValueError("pass catalog or catalog_kwargs, not both")
    found = resolve_table(catalog, table, "iceberg", mode)
    return found.table_identifier or table, found.catalog_kwargs
