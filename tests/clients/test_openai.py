"""The last two major versions of OpenAI's client use every endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate.serve.llm import build_openai_app
from skate.serve.llm._ingress.ingress import DEFAULT_ENDPOINTS
from tests.clients.conftest import Run
from tests.llm.serve.conftest import config


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "red"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"tag": "red"}))
    return folder


@pytest.fixture(scope="module")
def url(serving: Callable[[Any], str], adapter: Path) -> str:
    model = config(lora_config={"dynamic_lora_loading_path": str(adapter.parent)})
    keys = {"ingress_extra_kwargs": {"api_keys": ["secret"]}}
    return serving(build_openai_app({"llm_configs": [model], "ingress_cls_config": keys}))


@pytest.mark.parametrize("version", ["2", "3"])
def test_every_endpoint_is_used(version: str, url: str, adapter: Path, run_client: Run) -> None:
    report = run_client(f"openai-{version}", "openai_endpoints.py", url, str(adapter))
    assert report["version"].partition(".")[0] == version
    assert set(report["used"]) == {path for _, path, _, _ in DEFAULT_ENDPOINTS}
