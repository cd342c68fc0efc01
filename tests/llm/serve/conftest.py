"""One application for each module, because starting Serve takes longer than most tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from skate import serve
from tests.conftest import LeakWatch

# Functions import these, which take a second: pytest loads this module in every run, whatever tests it selects.
if TYPE_CHECKING:
    import openai

    from skate.serve.llm import LLMConfig

Run = Callable[..., str]


def config(model_id: str = "tiny", **fields: Any) -> LLMConfig:
    """Return the configuration of a model on the scripted engine."""
    from skate.serve.llm import LLMConfig
    from tests.llm.serve import scripted

    deployment = {"ray_actor_options": {"num_cpus": 0.1}, **fields.pop("deployment_config", {})}
    return LLMConfig(
        model_loading_config={"model_id": model_id},
        llm_engine=scripted.start,
        accelerator_config={"kind": "cpu"},
        deployment_config=deployment,
        **fields,
    )


@pytest.fixture(scope="module")
def run_app(leak_watch: LeakWatch) -> Iterator[Run]:
    """Return a function that serves models in the module's session, and returns the URL."""
    from skate.serve.llm import build_openai_app

    with leak_watch.shared_session(num_cpus=4):
        serve.start(http_options={"port": 0})

        def run(*configs: LLMConfig, **args: Any) -> str:
            serve.run(build_openai_app({"llm_configs": list(configs), **args}))
            host, port = serve.address()
            return f"http://{host}:{port}"

        yield run
        serve.shutdown()


@pytest.fixture(scope="module")
def url(run_app: Run) -> str:
    """Serve the model "tiny", and return the URL."""
    return run_app(config())


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    """Return OpenAI's client for the application."""
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made
