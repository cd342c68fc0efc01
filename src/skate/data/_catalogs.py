"""Resolution of tables of a catalog, for readers and writers."""

from __future__ import annotations

from typing import Any


def resolve_table(catalog: Any, table: Any, reader: str, mode: str = "read") -> Any:
    """Return the location of a table in a catalog.

    Args:
        catalog: A `Catalog`.
        table: Name of the table.
        reader: `ReaderFormat` of the reader or writer.
        mode: The `CatalogAccessMode`.

    Raises:
        TypeError: `table` is not a string.
    """
    from skate.data.catalog import CatalogAccessMode, ReaderFormat

    if not isinstance(table, str):
        raise TypeError(f"with a catalog, the path must be the name of one table, got {table!r}")
    return catalog.resolve(table, reader=ReaderFormat(reader), mode=CatalogAccessMode(mode))


def resolve_iceberg_table(
    catalog: Any, table: str, catalog_kwargs: dict[str, Any] | None, mode: str = "read"
) -> tuple[str, dict[str, Any] | None]:
    """Return the identifier and the catalog arguments of a table for pyiceberg.

    Raises:
        ValueError: `catalog_kwargs` is passed as well.
    """
    if catalog_kwargs is not None:
        raise ValueError("pass catalog or catalog_kwargs, not both")
    found = resolve_table(catalog, table, "iceberg", mode)
    return found.table_identifier or table, found.catalog_kwargs
