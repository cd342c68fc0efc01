"""The LoRA adapters of a replica, which are loaded on demand."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from skate import serve
from skate.llm import Engine
from skate.serve.llm._config import LLMConfig, LoraConfig
from skate.serve.llm._downloads import download
from skate.serve.llm._protocol.base import RequestError
from skate.serve.multiplex import loaded_model_ids

__all__ = ["ADAPTER_CONFIG", "Adapters", "adapter_path", "model_not_found"]

ADAPTER_CONFIG: Final = "adapter_config.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,255}")

_numbers = itertools.count()


def model_not_found(model: str) -> RequestError:
    """Return the error for a model that does not exist."""
    return RequestError(
        f"The model {model[:256]!r} does not exist. GET /v1/models lists the models.",
        404,
        param="model",
        code="model_not_found",
    )


def adapter_path(config: LoraConfig | None, model: str, base: str) -> str:
    """Return the path of the adapter of a model such as `"base:name"`.

    Raises:
        RequestError: If the model has no such adapter.
    """
    name = model.removeprefix(f"{base}:")
    folder = None if config is None else config.dynamic_lora_loading_path
    # The name must not contain a separator, which could lead out of the folder of the adapters.
    if folder is None or name == model or not _NAME.fullmatch(name):
        raise model_not_found(model)
    path = f"{folder}/{name}"
    if config is not None and config.is_local and not (Path(path) / ADAPTER_CONFIG).is_file():
        raise model_not_found(model)
    return path


class _Adapter:
    """An adapter in the engine. It stays loaded while a request uses it."""

    def __init__(self, engine: Engine, path: str, config: LoraConfig) -> None:
        self._engine = engine
        self._path = path
        self._config = config
        self._name = ""
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._lock = asyncio.Lock()

    async def begin(self) -> str:
        """Load the adapter if necessary, and return the engine's name for it. Call `end` afterwards."""
        async with self._lock:
            if not self._name:
                # Each load gets a new name, because the previous one may still be in use.
                name = f"{Path(self._path).name}#{next(_numbers)}"
                folder = await download(
                    self._path, tries=self._config.max_download_tries, timeout=self._config.download_timeout_s
                )
                try:
                    await self._engine.add_adapter(name, str(folder))
                except (OSError, ValueError) as error:
                    raise RequestError(
                        f"Could not load the adapter in {self._path!r}: {error}", 400, param="model"
                    ) from error
                self._name = name
            self._users += 1
            self._idle.clear()
            return self._name

    def end(self) -> None:
        """Record that a request no longer uses the adapter."""
        self._users -= 1
        if not self._users:
            self._idle.set()

    async def unload(self) -> None:
        """Wait until no request uses the adapter, and remove it from the engine."""
        async with self._lock:
            await self._idle.wait()
            name, self._name = self._name, ""
            if name:
                await self._engine.remove_adapter(name)

    async def __del__(self) -> None:
        # `serve.multiplexed` awaits this method when it evicts the adapter.
        await self.unload()


class Adapters:
    """The adapters that a replica has loaded.

    Args:
        engine: The engine.
        config: The configuration of the model.
    """

    def __init__(self, engine: Engine, config: LLMConfig) -> None:
        lora = config.lora_config or LoraConfig()
        self._config = config

        async def load(path: str) -> _Adapter:
            return _Adapter(engine, path, lora)

        # Serve sends requests for an adapter to a replica that has loaded it.
        self._load = serve.multiplexed(max_num_models_per_replica=lora.max_num_adapters_per_replica)(load)

    @asynccontextmanager
    async def use(self, model: str | None) -> AsyncIterator[str | None]:
        """Load the adapter that the current request names, and keep it until the context exits.

        Args:
            model: The model that the request names.

        Returns:
            The engine's name for the adapter; None for the base model.

        Raises:
            RequestError: If there is no such model.
        """
        path = self._path(model)
        if path is None:
            yield None
            return
        adapter = await self._load(path)
        name = await adapter.begin()
        try:
            yield name
        finally:
            adapter.end()

    async def unload(self, path: str) -> None:
        """Unload the adapter at a path, if it is loaded."""
        if path in loaded_model_ids():
            await (await self._load(path)).unload()

    def _path(self, model: str | None) -> str | None:
        requested = serve.get_multiplexed_model_id() or model
        base = self._config.model_id
        if requested is None or requested == base:
            return None
        if requested.startswith(f"{base}:"):
            return adapter_path(self._config.lora_config, requested, base)
        if requested != model and self._config.lora_config is not None:
            return (
                requested  # the path of an adapter that was loaded by name, which the ingress has looked up
            )
        raise model_not_found(requested)
