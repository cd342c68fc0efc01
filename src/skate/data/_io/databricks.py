"""Results of queries that a SQL warehouse of Databricks runs, as a source; and credentials for Databricks."""

from __future__ import annotations

import abc
import functools
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from skate.air import _optional
from skate.data._io import balancing
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

Result = TypeVar("Result")

# Seconds between two questions whether a query is done.
_POLL_INTERVAL = 1.0
_WAITING = {"PENDING", "RUNNING"}


class DatabricksCredentialProvider(abc.ABC):
    """Derive from this to get tokens in a way of your own; it is pickled, and used in tasks too."""

    @abc.abstractmethod
    def get_token(self) -> str:
        """Return a token that is valid now."""

    @abc.abstractmethod
    def get_host(self) -> str:
        """Return the address of the workspace."""

    @abc.abstractmethod
    def invalidate(self) -> None:
        """Forget the token, which the server has refused."""


@dataclass
class StaticCredentialProvider(DatabricksCredentialProvider):
    """A token that does not change.

    Attributes:
        token: The token.
        host: The address of the workspace.
    """

    token: str = field(repr=False)
    host: str

    def __post_init__(self) -> None:
        if not self.token or not self.host:
            raise ValueError("both the token and the host of a Databricks workspace are needed")

    def get_token(self) -> str:
        """Return the token."""
        return self.token

    def get_host(self) -> str:
        """Return the address."""
        return self.host

    def invalidate(self) -> None:
        """Do nothing: there is no other token."""


class EnvironmentCredentialProvider(DatabricksCredentialProvider):
    """A token and a host from environment variables, as the process that makes the provider has them.

    Args:
        token_env_var: The variable of the token.
        host_env_var: The variable of the host.
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
        """Return the address."""
        return self._host

    def invalidate(self) -> None:
        """Read the token from the environment again."""
        self._token = os.environ.get(self._token_env_var) or self._token


def ask(credentials: DatabricksCredentialProvider, call: Callable[[Any], Result], caller: str) -> Result:
    """Return what a call with a client of the workspace returns; a refused token is renewed once.

    Args:
        credentials: Of the workspace.
        call: Takes a `WorkspaceClient` of `databricks.sdk`.
        caller: The call of the user, for the error if the package is missing.
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
    """Read the result of a query, which runs when the source is made, by its chunks.

    Args:
        warehouse_id: The warehouse that runs the query.
        query: The statement.
        catalog: The catalog for names that have none.
        schema: The schema for names that have none.
        credential_provider: Of the workspace; the environment has them if not given.

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
        response = self._ask(
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
        response = self._finished(response)
        state = response.status.state.value
        if state != "SUCCEEDED":
            reason = response.status.error
            raise RuntimeError(
                f"the query {query!r} {state.lower()}: {reason.message if reason else 'no reason given'}"
            )
        self._chunks = sorted(response.manifest.chunks or (), key=lambda chunk: chunk.chunk_index)

    def _finished(self, response: Any) -> Any:
        """Return the response to a statement that runs no more; cancel it if this program is interrupted."""
        try:
            while response.status.state.value in _WAITING:
                time.sleep(_POLL_INTERVAL)
                response = self._ask(lambda client: client.statement_execution.get_statement(self._statement))
        except KeyboardInterrupt:
            self._ask(lambda client: client.statement_execution.cancel_execution(self._statement))
            raise
        return response

    def _ask(self, call: Callable[[Any], Result]) -> Result:
        return ask(self._credentials, call, "read_databricks_tables")

    def num_rows(self) -> int | None:
        """Return the number of rows of the result."""
        return int(sum(chunk.row_count for chunk in self._chunks))

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the bytes of the result."""
        return int(sum(chunk.byte_count for chunk in self._chunks))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Cut the chunks into runs of about the same size."""
        tasks = []
        sizes = [chunk.byte_count for chunk in self._chunks]
        reader = self._changed(_chunks=None)
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
        for index in chunks:
            found = self._ask(
                lambda client, index=index: client.statement_execution.get_statement_result_chunk_n(  # type: ignore[misc]
                    self._statement, index
                )
            )
            for link in found.external_links:
                # The address is signed: it needs no token, and must not get one.
                headers = dict(link.http_headers or {})
                request = urllib.request.Request(link.external_link, headers=headers)
                with urllib.request.urlopen(request) as response, pa.ipc.open_stream(response) as stream:
                    for batch in stream:
                        yield pa.Table.from_batches([batch])
