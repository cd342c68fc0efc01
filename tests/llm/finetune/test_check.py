"""`skate llm check` and `skate llm finetune`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from skate.llm import FinetuneConfig
from skate.llm._finetune.check import check
from tests.llm.finetune.models import chat, chats
from tests.plugins.command_line import Cli

Make = Callable[..., FinetuneConfig]


@pytest.fixture
def file(config: Make, tmp_path: Path) -> Callable[..., str]:
    """Write a configuration to a file."""

    def make(*rows: Any, **keys: Any) -> str:
        values = config(*rows, **keys).as_dict()
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(values))
        return str(path)

    return make


def test_a_good_configuration_has_no_problems(config: Make) -> None:
    report = check(config([*chats(30), "{"], adapter="lora", micro_batch_size=2))
    assert report.problems == []
    assert report.stop_token == "<|im_end|>"
    assert [[piece.trained for piece in row] for row in report.rows] == [[False, True, False]] * 3
    assert all(row[1].text.endswith("<|im_end|>") for row in report.rows)
    assert report.dead_letters == {"the line is not JSON": 1}
    assert report.fill is not None
    assert report.fill > 0.8
    assert report.leak is not None
    assert report.leak < 1e-5
    assert report.worst_tokens > 100
    assert report.trained_parameters < report.parameters
    assert report.memory_bytes > 0
    assert not Path(config().output_dir).exists()


def test_check_shows_trained_tokens_and_ends_well(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("llm", "check", file([chat("say red", "red one")] * 4))
    assert "<|im_start|>user\nsay red<|im_end|>" in done.out
    assert "[[red one<|im_end|>]]" in done.out
    assert "<|im_end|>, trained in every row" in done.out
    assert "is valid" in done.err


def test_check_refuses_packing_that_leaks(
    cli: Cli, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from skate.llm._finetune import check, loop

    monkeypatch.setattr(loop, "packed_difference", lambda *given: 0.5)
    monkeypatch.setattr(check, "packed_difference", lambda *given: 0.5)
    done = cli("llm", "check", file(), "--format", "json", status=1)
    assert "see each other" in done.err
    assert json.loads(done.out)["leak"] == 0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("base_model=nowhere", "which has no config.json"),
        ("chat_template=chatmll", "Did you mean 'chatml'?"),
        ("sequence_len=4", "none of 24 rows can be trained on"),
        ("sequence_le=4", "unknown key 'sequence_le'. Did you mean 'sequence_len'?"),
        ("chat_template='{{ messages }}'", "the chat template"),
    ],
)
def test_check_refuses_with_the_reason(cli: Cli, file: Callable[..., str], change: str, said: str) -> None:
    done = cli("llm", "check", file(), "--set", change, status=1)
    assert said in done.err


def test_finetune_prints_where_the_model_is(cli: Cli, file: Callable[..., str], tmp_path: Path) -> None:
    done = cli("llm", "finetune", file(), "--set", "max_steps=2", "--format", "json")
    printed = json.loads(done.out)
    assert printed["path"] == str(tmp_path / "out" / "model")
    assert printed["step"] == 2
    assert cli("llm", "finetune", file(), "--set", "max_steps=2", status=1).err.startswith(
        "Error: output_dir"
    )


def test_a_change_must_have_a_value(cli: Cli, file: Callable[..., str]) -> None:
    assert "KEY=VALUE" in cli("llm", "finetune", file(), "--set", "max_steps", status=2).err
    assert (
        "is not valid YAML" in cli("llm", "finetune", file(), "--set", "chat_template={{ x }}", status=2).err
    )
