"""The worker that sends rows to a Serve deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.data.llm._config import ServeDeploymentProcessorConfig
from skate.data.llm._rows import RowWorker, missing_column, shown

__all__ = ["DeploymentWorker"]


class DeploymentWorker(RowWorker):
    """Calls a deployment with the request of each row.

    Args:
        config: The configuration of the processor.
        carries_rows: Whether each result is a row in one cell.
    """

    def __init__(self, *, config: ServeDeploymentProcessorConfig, carries_rows: bool) -> None:
        super().__init__(config, carries_rows=carries_rows)
        from skate import serve  # imported here, because other processors do not need Serve

        self._config = config
        self._handle = serve.get_deployment_handle(config.deployment_name, config.app_name)
        self._generators: set[str] = set()  # methods that return generators

    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the deployment's response."""
        for name in ("method", "request_kwargs"):
            if row.get(name) is None:
                raise missing_column(f"`{name}`", row)
        answer = await self._call(row["method"], self._request(row))
        if hasattr(answer, "model_dump"):
            answer = answer.model_dump()
        if not isinstance(answer, Mapping):
            raise TypeError(
                f"the method {row['method']!r} must return a dict or a pydantic model, got {shown(answer)}"
            )
        if set(answer) == {"error"}:  # `skate.serve.llm` rejects requests in this way
            raise ValueError(f"the deployment returned an error: {shown(answer['error'])}")
        return dict(answer)

    def _request(self, row: dict[str, Any]) -> Any:
        fields = dict(row["request_kwargs"])
        name = row.get("dtype")
        if name is None:
            return fields
        known = self._config.dtype_mapping or {}
        if name not in known:
            raise ValueError(
                f"`dtype` is {name!r}, which is not in `dtype_mapping`.{did_you_mean(name, known)}"
            )
        return known[name](**fields)

    async def _call(self, method: str, request: Any) -> Any:
        if method not in self._generators:
            try:
                return await self._with_timeout(
                    self._handle.options(method_name=method).remote(request), method
                )
            except TypeError as error:
                # Only the replica knows which methods return generators. The generator has not started.
                if "returned a generator" not in str(error) or "stream=True" not in str(error):
                    raise
                self._generators.add(method)
        stream = self._handle.options(method_name=method, stream=True).remote(request)
        return await self._with_timeout(anext(aiter(stream)), method)

    async def _with_timeout(self, answer: Any, method: str) -> Any:
        limit = self._config.request_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError as error:
            raise TimeoutError(
                f"the method {method!r} did not return within request_timeout_s={limit} s"
            ) from error
