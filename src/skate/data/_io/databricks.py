"""Datasource for query results of a Databricks SQL warehouse, and credentials for Databricks."""

from __future__ import annotations

import abc
import functools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from skate.air import _optional
from skate.data._io import balancing
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

Result = TypeVar("Result")

# Seconds between two polls of a running statement.
_POLL_INTERVAL = 1.0
_WAITING = {"PENDING", "RUNNING"}


class DatabricksCredentialProvider(abc.ABC):
    """Base class for custom sources of tokens; providers are pickled and used in tasks."""

    @abc.abstractmethod
    def get_token(self) -> str:
        """Return a currently valid token."""

    @abc.abstractmethod
    def get_host(self) -> str:
        """Return the host of the workspace."""

    @abc.abstractmethod
    def invalidate(self) -> None:
        """Discard a token that the server rejected."""


@dataclass
class StaticCredentialProvider(DatabricksCredentialProvider):
    """Provide a fixed token.

    Attributes:
        token: The token.
        host: The host of the workspace.
    """

    token: str = field(repr=False)
    host: str

    def __post_init__(self) -> None:
        if not self.token or not self.host:
            raise ValueError(
                "StaticCredentialProvider needs both a token and a host, but one of them is empty"
            )

    def get_token(self) -> str:
        """Return the token."""
        return self.token

    def get_host(self) -> str:
        """Return the host."""
        return self.host

    def invalidate(self) -> None:
        """Do nothing: the token is fixed."""


class EnvironmentCredentialProvider(DatabricksCredentialProvider):
    """Provide a token and a host from environment variables of the process that creates the provider.

    Args:
        token_env_var: Name of the variable that holds the token.
        host_env_var: Name of the variable that holds the host.
    """

    def __init__(
        self, token_env_var: str = "DATABRICKS_TOKEN", host_env_var: str = "DATABRICKS_HOST"
    ) -> None:
        found = {name: os.environ.get(name, "") for name in (token_env_var, host_env_var)}
        missing = [name for name, value in found.items() if not value]
        if missing:
            raise ValueError(
                f"the environment variables {' and '.join(missing)} are not set: set them, or pass credential_provider"
            )
        self._token, self._host = found[token_env_var], found[host_env_var]
        self._token_env_var = token_env_var

    def get_token(self) -> str:
        """Return the token."""
        return self._token

    def get_host(self) -> str:
        """Return the host."""
        return self._host

    def invalidate(self) -> None:
        """Read the token from the environment again."""
        self._token = os.environ.get(self._token_env_var) or self._token


def call_workspace(
    credentials: DatabricksCredentialProvider, call: Callable[[Any], Result], caller: str
) -> Result:
    """Call a function with a workspace client; renew a rejected token once.

    Args:
        credentials: Credentials of the workspace.
        call: Function that takes a `WorkspaceClient` of `databricks.sdk`.
        caller: The public call, named in the error if the package is missing.
    """
    sdk = _optional.load("databricks.sdk", caller, "databricks-sdk")

    def attempt() -> Result:
        host = credentials.get_host()
        host = host if host.startswith(("http://", "https://")) else f"https://{host}"
        return call(sdk.WorkspaceClient(host=host, token=credentials.get_token(), auth_type="pat"))

    try:
        return attempt()
    except sdk.errors.Unauthenticated:
        credentials.invalidate()
        return attempt()


class DatabricksDatasource(Datasource):
    """Read the result of a query chunk by chunk; the query runs when the datasource is created.

    Args:
        warehouse_id: The warehouse that runs the query.
        query: The statement.
        catalog: Default catalog for unqualified names.
        schema: Default schema for unqualified names.
        credential_provider: Credentials of the workspace; read from the environment by default.

    Raises:
        RuntimeError: The query failed.
    """

    def __init__(
        self,
        warehouse_id: str,
        query: str,
        catalog: str | None = None,
        schema: str | None = None,
        credential_provider: DatabricksCredentialProvider | None = None,
    ) -> None:
        sql = _optional.load("databricks.sdk.service.sql", "read_databricks_tables", "databricks-sdk")
        self._credentials = credential_provider or EnvironmentCredentialProvider()
        response = self._call(
            lambda client: client.statement_execution.execute_statement(
                statement=query,
                warehouse_id=warehouse_id,
                catalog=catalog,
                schema=schema,
                disposition=sql.Disposition.EXTERNAL_LINKS,
                format=sql.Format.ARROW_STREAM,
                wait_timeout="0s",
            )
        )
        self._statement = response.statement_id
        response = self._wait_for_statement(response)
        state = response.status.state.value
        if state != "SUCCEEDED":
            reason = response.status.error
            raise RuntimeError(
                f"the query {query!r} {state.lower()}: {reason.message if reason else 'no reason given'}"
            )
        self._chunks = sorted(response.manifest.chunks or (), key=lambda chunk: chunk.chunk_index)

    def _wait_for_statement(self, response: Any) -> Any:
        """Wait for a statement to end and return its response; cancel the statement if the program is interrupted."""
        try:
            while response.status.state.value in _WAITING:
                time.sleep(_POLL_INTERVAL)
                response = self._call(
                    lambda client: client.statement_execution.get_statement(self._statement)
                )
        except KeyboardInterrupt:
            self._call(lambda client: client.statement_execution.cancel_execution(self._statement))
            raise
        return response

    def _call(self, call: Callable[[Any], Result]) -> Result:
        return call_workspace(self._credentials, call, "read_databricks_tables")

    def num_rows(self) -> int | None:
        """Return the number of rows of the result."""
        return int(sum(chunk.row_count for chunk in self._chunks))

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the size of the result, in bytes."""
        return int(sum(chunk.byte_count for chunk in self._chunks))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the chunks into groups of about the same size."""
        tasks = []
        sizes = [chunk.byte_count for chunk in self._chunks]
        reader = self._replace(_chunks=None)
        for group in balancing.balance(self._chunks, sizes, parallelism) if self._chunks else ():
            metadata = BlockMetadata(
                num_rows=sum(chunk.row_count for chunk in group),
                size_bytes=sum(chunk.byte_count for chunk in group),
                input_files=None,
                exec_stats=None,
            )
            read = functools.partial(reader._read, [chunk.chunk_index for chunk in group])
            tasks.append(ReadTask(read, metadata, None, per_task_row_limit))
        return tasks

    def _read(self, chunks: list[int]) -> Iterator[pa.Table]:
        import urllib.request  # slow to load

        for index in chunks:
            found = self._call(
                lambda client, index=index: client.statement_execution.get_statement_result_chunk_n(  # type: ignore[misc]
                    self._statement, index
                )
            )
            for link in found.external_links:
                # The URL is presigned: it needs no token, and must not receive one.
                headers = dict(link.http_headers or {})
                request = urllib.request.Request(link.external_link, headers=headers)
                with urllib.request.urlopen(request) as response, pa.ipc.open_stream(response) as stream:
                    for batch in stream:
                        yield pa.Table.from_batches([batch])
