"""Gradio interfaces as deployments, with a stand-in for the one class of Gradio that is used."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from skate.serve.gradio_integrations import GradioIngress, GradioServer


class App:
    """Stands for `gradio.routes.App`."""

    @staticmethod
    def create_app(blocks: Any) -> Callable[..., Any]:
        async def app(*_: Any) -> Any:
            return blocks

        return app


@pytest.fixture
def gradio(monkeypatch: pytest.MonkeyPatch) -> None:
    package, routes = types.ModuleType("gradio"), types.ModuleType("gradio.routes")
    routes.App = App  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "gradio", package)
    monkeypatch.setitem(sys.modules, "gradio.routes", routes)


async def test_the_interface_is_made_in_the_replica_and_answers_its_requests(gradio: None) -> None:
    made: list[str] = []

    def builder() -> str:
        made.append("interface")
        return "interface"

    application = GradioServer.bind(builder)
    assert made == []
    kind = application._bound_deployment.func_or_class
    assert kind is GradioIngress
    app = kind(builder)._skate_asgi_app()
    assert made == ["interface"]
    assert await app() == "interface"


def test_without_gradio_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setitem(sys.modules, "gradio.routes", None)
    with pytest.raises(ImportError, match="GradioIngress needs gradio: pip install gradio"):
        GradioIngress(lambda: None)
