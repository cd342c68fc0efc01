"""Catalogs, which resolve the name of a table to a location and credentials."""

from __future__ import annotations

import abc
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from skate.air._optional import load
from skate.data._io.databricks import DatabricksCredentialProvider, StaticCredentialProvider, call_workspace

__all__ = ["Catalog", "CatalogAccessMode", "DatabricksUnityCatalog", "ReaderFormat", "ResolvedSource"]


class ReaderFormat(StrEnum):
    """The reader or writer that resolves a table."""

    DELTA = "delta"
    PARQUET = "parquet"
    ICEBERG = "iceberg"


class CatalogAccessMode(StrEnum):
    """The access that credentials must permit."""

    READ = "read"
    WRITE = "write"


@dataclass
class ResolvedSource:
    """The location of a table and the arguments to access it; a reader uses the fields that apply to it.

    Attributes:
        path: For `read_delta` and `read_parquet`: the path or URI.
        filesystem: For the same: the filesystem with credentials.
        storage_options: For `read_delta`: credentials as storage options of `deltalake`.
        catalog_kwargs: For `read_iceberg`: arguments of `pyiceberg.catalog.load_catalog`.
        table_identifier: For `read_iceberg`: name of the table in that catalog.
        data_format: Format of the table, if the catalog knows it.
    """

    path: str | None = None
    filesystem: pafs.FileSystem | None = None
    storage_options: dict[str, Any] | None = None
    catalog_kwargs: dict[str, Any] | None = None
    table_identifier: str | None = None
    data_format: ReaderFormat | None = None


class Catalog(abc.ABC):
    """Base class of custom catalogs for `read_delta`, `read_parquet` and `read_iceberg`.

    >>> class Folder(Catalog):
    ...     def resolve(self, table, *, reader, mode=CatalogAccessMode.READ):
    ...         return ResolvedSource(path=f"/data/{table}")
    >>> Folder().resolve("orders", reader=ReaderFormat.PARQUET).path
    '/data/orders'
    """

    @abc.abstractmethod
    def resolve(
        self, table: str, *, reader: ReaderFormat, mode: CatalogAccessMode = CatalogAccessMode.READ
    ) -> ResolvedSource:
        """Return the location of a table.

        Args:
            table: Name of the table in the catalog.
            reader: The reader or writer.
            mode: The access that the credentials must permit.
        """


@dataclass(frozen=True)
class DatabricksUnityCatalog(Catalog):
    """Resolve tables in Databricks Unity Catalog, with short-lived credentials.

    Delta and Parquet tables get credentials for their storage: S3 for both, Azure and Google Cloud Storage for Parquet.
    Iceberg tables get the address of the catalog's REST interface.

    Args:
        url: Address of the workspace.
        token: Token of the workspace.
        credential_provider: Provider of both, instead of `url` and `token`.
        region: Region of the S3 bucket; required for tables on S3.
    """

    _: KW_ONLY
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    credential_provider: DatabricksCredentialProvider | None = field(default=None, repr=False)
    region: str | None = None

    def __post_init__(self) -> None:
        if self.credential_provider is None and not (self.url and self.token):
            raise ValueError("DatabricksUnityCatalog needs url and token, or a credential_provider")

    def resolve(
        self, table: str, *, reader: ReaderFormat, mode: CatalogAccessMode = CatalogAccessMode.READ
    ) -> ResolvedSource:
        """Return the location of a table, with new credentials.

        Args:
            table: Name of the table: `catalog.schema.table`.
            reader: The reader or writer.
            mode: The access that the credentials must permit.

        Raises:
            ValueError: The reader cannot use the credentials of the table's storage.
        """
        reader, mode = ReaderFormat(reader), CatalogAccessMode(mode)
        if reader is ReaderFormat.ICEBERG:
            return self._iceberg(table)
        described = self._call(lambda client: client.tables.get(full_name=table))
        granted = self._credentials(described.table_id, mode)
        found = ResolvedSource(path=granted.url, data_format=_format_of(described))
        if granted.aws_temp_credentials is not None:
            self._use_s3(found, granted.aws_temp_credentials)
        elif reader is ReaderFormat.DELTA:
            raise ValueError(
                f"the Delta table {table} is at {granted.url}, but credentials of Unity Catalog work for Delta "
                f"tables on S3 only: use read_databricks_tables"
            )
        elif granted.azure_user_delegation_sas is not None:
            _use_azure(found, granted.azure_user_delegation_sas.sas_token)
        elif granted.gcp_oauth_token is not None:
            found.filesystem = pafs.GcsFileSystem(
                access_token=granted.gcp_oauth_token.oauth_token,
                credential_token_expiration=datetime.fromtimestamp(granted.expiration_time / 1000, UTC),
            )
        else:
            raise ValueError(f"Unity Catalog returned no credentials for {table}, at {granted.url}")
        return found

    def infer_format(self, table: str) -> ReaderFormat | None:
        """Return the format of a table according to Unity Catalog; None if no reader supports it."""
        return _format_of(self._call(lambda client: client.tables.get(full_name=table)))

    @property
    def _provider(self) -> DatabricksCredentialProvider:
        if self.credential_provider is not None:
            return self.credential_provider
        return StaticCredentialProvider(token=self.token or "", host=self.url or "")

    def _call(self, call: Any) -> Any:
        return call_workspace(self._provider, call, "DatabricksUnityCatalog")

    def _credentials(self, table_id: str, mode: CatalogAccessMode) -> Any:
        library = load("databricks.sdk.service.catalog", "DatabricksUnityCatalog", "databricks-sdk")
        # Unity Catalog has no operation for write-only access.
        operation = library.TableOperation["READ" if mode is CatalogAccessMode.READ else "READ_WRITE"]
        return self._call(
            lambda client: client.temporary_table_credentials.generate_temporary_table_credentials(
                table_id=table_id, operation=operation
            )
        )

    def _use_s3(self, found: ResolvedSource, credentials: Any) -> None:
        if not self.region:
            raise ValueError(
                f"the table is at {found.path}: pass the region of the bucket, as region='us-west-2'"
            )
        found.filesystem = pafs.S3FileSystem(
            access_key=credentials.access_key_id,
            secret_key=credentials.secret_access_key,
            session_token=credentials.session_token,
            region=self.region,
        )
        found.storage_options = {
            "AWS_ACCESS_KEY_ID": credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            "AWS_SESSION_TOKEN": credentials.session_token,
            "AWS_REGION": self.region,
        }

    def _iceberg(self, table: str) -> ResolvedSource:
        host = self._provider.get_host().rstrip("/")
        host = host if host.startswith(("http://", "https://")) else f"https://{host}"
        # The REST interface serves one catalog of the workspace, so table names omit it.
        warehouse, _, name = table.partition(".")
        return ResolvedSource(
            catalog_kwargs={
                "type": "rest",
                "uri": f"{host}/api/2.1/unity-catalog/iceberg-rest",
                "warehouse": warehouse,
                "token": self._provider.get_token(),
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
            },
            table_identifier=name,
            data_format=ReaderFormat.ICEBERG,
        )


def _use_azure(found: ResolvedSource, token: str) -> None:
    # abfss://container@account.dfs.core.windows.net/folder
    place = urlsplit(found.path or "")
    account = (place.hostname or "").partition(".")[0]
    found.filesystem = pafs.AzureFileSystem(account_name=account, sas_token=token.removeprefix("?"))
    found.path = f"{place.username}{place.path}"


def _format_of(described: Any) -> ReaderFormat | None:
    kind = described.data_source_format.value if described.data_source_format is not None else ""
    also = (described.properties or {}).get("delta.universalFormat.enabledFormats", "")
    if kind == "DELTA":
        return ReaderFormat.ICEBERG if "iceberg" in also.lower() else ReaderFormat.DELTA
    return ReaderFormat(kind.lower()) if kind.lower() in list(ReaderFormat) else None
