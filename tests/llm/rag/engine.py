"""An engine for tests: the question says what it does, as in `tests.llm.serve.scripted`."""

from __future__ import annotations

from typing import Any

from skate.llm import GenerationRequest
from skate.serve.llm import LLMConfig
from tests.llm.serve.scripted import ScriptedEngine


class QuestionEngine(ScriptedEngine):
    """Takes the command from the question behind the passages. `quote …` generates the beginning of the passages."""

    def _command(self, request: GenerationRequest) -> str:
        passages, _, question = super()._command(request).rpartition("Question: ")
        return passages if question.startswith("quote ") else question


def start(config: LLMConfig) -> Any:
    return QuestionEngine(**config.engine_kwargs)


def config(**engine_kwargs: Any) -> LLMConfig:
    """Return the configuration of the language model."""
    return LLMConfig(
        model_loading_config={"model_id": "scripted"},
        llm_engine=start,
        engine_kwargs=engine_kwargs,
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 0.1}},
    )
