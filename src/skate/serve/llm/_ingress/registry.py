"""The models of an application, and their LoRA adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skate.serve.handle import DeploymentHandle
from skate.serve.llm._config import LoraConfig
from skate.serve.llm._protocol.base import RequestError
from skate.serve.llm._protocol.service import LoadLoraAdapterRequest, ModelCard
from skate.serve.llm._server.adapters import ADAPTER_CONFIG, adapter_path, model_not_found

__all__ = ["ModelRegistry"]


@dataclass(frozen=True, slots=True)
class _LoadedAdapter:
    """An adapter that `/v1/load_lora_adapter` has loaded."""

    base: str
    path: str


class ModelRegistry:
    """Find the deployment for the model that a request names.

    Args:
        handles: A handle for each model.
        cards: A card for each model.
        lora_paths: The folder of adapters of each model; None if the model's adapters are loaded by name only.
    """

    def __init__(
        self,
        handles: Mapping[str, DeploymentHandle[Any]],
        cards: Mapping[str, ModelCard],
        lora_paths: Mapping[str, str | None],
    ) -> None:
        if set(handles) != set(cards):
            raise ValueError(
                f"`llm_deployments` and `model_cards` must have the same models, got {sorted(handles)} and "
                f"{sorted(cards)}."
            )
        self.handles = dict(handles)
        self._cards = dict(cards)
        self._lora = {model: LoraConfig(dynamic_lora_loading_path=path) for model, path in lora_paths.items()}
        self._loaded: dict[str, _LoadedAdapter] = {}
        self._streams: dict[tuple[str, str], DeploymentHandle[Any]] = {}

    def handle(self, model: str | None) -> DeploymentHandle[Any]:
        """Return the handle for requests to a model or an adapter. Its methods return streams.

        Args:
            model: The model that the request names; None if there is only one.

        Raises:
            RequestError: If there is no such model.
        """
        base, path = self._find(model)
        handle = self._streams.get((base, path))
        if handle is None:
            handle = self.handles[base].options(stream=True, multiplexed_model_id=path)
            if not path:  # there may be many adapters
                self._streams[base, path] = handle
        return handle

    def _find(self, model: str | None) -> tuple[str, str]:
        """Return the base model, and the path of the adapter, which is empty without one."""
        if model is None:
            if len(self.handles) != 1:
                raise RequestError(
                    f"`model` is missing. The models are: {', '.join(sorted(self.handles))}.",
                    param="model",
                )
            return next(iter(self.handles)), ""
        if model in self.handles:
            return model, ""
        if model in self._loaded:
            return self._loaded[model].base, self._loaded[model].path
        for base, config in self._lora.items():
            if model.startswith(f"{base}:"):
                return base, adapter_path(config, model, base)
        raise model_not_found(model)

    def card(self, model: str) -> ModelCard:
        """Return the card of a model or an adapter.

        Raises:
            RequestError: If there is no such model.
        """
        base, path = self._find(model)
        card = self._cards[base]
        return card if not path else self._adapter_card(model, card)

    def cards(self) -> list[ModelCard]:
        """Return the cards of all models, of the adapters in local folders, and of the adapters loaded by name."""
        found = list(self._cards.values())
        for base, config in self._lora.items():
            if config.is_local:
                folder = Path(config.dynamic_lora_loading_path or "")
                names = sorted(each.parent.name for each in folder.glob(f"*/{ADAPTER_CONFIG}"))
                found += [self._adapter_card(f"{base}:{name}", self._cards[base]) for name in names]
        found += [self._adapter_card(name, self._cards[each.base]) for name, each in self._loaded.items()]
        return found

    @staticmethod
    def _adapter_card(name: str, base: ModelCard) -> ModelCard:
        return base.model_copy(update={"id": name, "parent": base.id})

    def load(self, request: LoadLoraAdapterRequest) -> None:
        """Make an adapter available as a model.

        Raises:
            RequestError: If there is no such adapter, or its name is already in use.
        """
        base = request.base_model
        if base is None:
            if len(self._lora) != 1:
                raise RequestError(
                    f"`base_model` is missing. The models that take adapters are: {', '.join(sorted(self._lora))}.",
                    param="base_model",
                )
            base = next(iter(self._lora))
        if base not in self._lora:
            raise RequestError(
                f"The model {base!r} does not take adapters: set `lora_config` in its configuration.",
                param="base_model",
            )
        name = request.lora_name
        if name in self.handles or name in self._loaded:
            raise RequestError(
                f"There is already a model {name!r}: unload it, or use another name.", param="lora_name"
            )
        folder = Path(request.lora_path).resolve()
        config = self._lora[base]
        root = config.dynamic_lora_loading_path
        if root is not None and not (config.is_local and folder.is_relative_to(Path(root).resolve())):
            raise RequestError(
                f"`lora_path` must be inside the folder of adapters, {root!r}.", param="lora_path"
            )
        if not (folder / ADAPTER_CONFIG).is_file():
            raise RequestError(
                f"`lora_path` is not a LoRA adapter: it has no file {ADAPTER_CONFIG}.", 404, param="lora_path"
            )
        self._loaded[name] = _LoadedAdapter(base, str(folder))

    def unload(self, name: str) -> tuple[DeploymentHandle[Any], str]:
        """Remove an adapter that was loaded by name, and return the handle of its model and its path.

        Raises:
            RequestError: If there is no such adapter.
        """
        if name not in self._loaded:
            raise model_not_found(name)
        found = self._loaded.pop(name)
        return self.handles[found.base], found.path
