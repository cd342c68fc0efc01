"""Gradio interfaces as deployments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.air._optional import load
from skate.serve.api import deployment

__all__ = ["GradioIngress", "GradioServer"]


class GradioIngress:
    """Serve a Gradio interface. Subclass it to call other deployments from the interface.

    Args:
        builder: Creates the interface inside the replica, because most interfaces cannot be pickled.

    Example:
        >>> from skate import serve
        >>> from skate.serve.gradio_integrations import GradioIngress
        >>> @serve.deployment
        ... class Chat(GradioIngress):
        ...     def __init__(self, model):
        ...         import gradio
        ...
        ...         self._model = model
        ...         super().__init__(lambda: gradio.Interface(self.answer, "textbox", "textbox"))
        ...
        ...     async def answer(self, text):
        ...         return await self._model.remote(text)
    """

    def __init__(self, builder: Callable[[], Any]) -> None:
        routes = load("gradio.routes", "GradioIngress", "gradio")
        self._gradio_app = routes.App.create_app(builder())

    def _skate_asgi_app(self) -> Any:
        return self._gradio_app


GradioServer = deployment(GradioIngress)
"""A deployment of a Gradio interface: `GradioServer.options(num_replicas=2).bind(builder)`."""
