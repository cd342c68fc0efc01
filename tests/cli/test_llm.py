"""`skate llm serve`, `chat` and `bench`, on a small model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("tokenizers")

from skate.cli import main
from tests.llm.engine.models import write_model

ONE_THREAD = ("--engine-arg", "num_threads=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("small")))


def test_chat_answers_one_question(model: str) -> None:
    command = [
        "llm",
        "chat",
        model,
        *ONE_THREAD,
        "--message",
        "The quick",
        "--max-tokens",
        "8",
        "--seed",
        "1",
    ]
    first, second = CliRunner().invoke(main, command), CliRunner().invoke(main, command)
    assert first.exit_code == 0, first.output
    assert first.stdout.strip()
    assert second.stdout == first.stdout
    assert "torch engine on the CPU with 1 threads" in first.stderr


def test_chat_answers_each_line(model: str) -> None:
    found = CliRunner().invoke(
        main, ["llm", "chat", model, *ONE_THREAD, "--max-tokens", "4"], input="The quick\n\nbrown fox\n"
    )
    assert found.exit_code == 0, found.output


def test_bench_reports_rates(model: str) -> None:
    found = CliRunner().invoke(
        main,
        ["llm", "bench", model, *ONE_THREAD, "--streams", "3", "--output-tokens", "5", "--format", "json"],
    )
    assert found.exit_code == 0, found.output
    row = json.loads(found.stdout)
    assert row["streams"] == 3
    assert row["tokens_per_second"] > 0


def test_bench_shows_what_a_quantization_costs(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", hidden_size=64, head_dim=16)
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20)
    sizes = ("--streams", "1", "--output-tokens", "2")
    cost = ("--quantization", "int4", "--text", str(text))
    found = CliRunner().invoke(
        main, ["llm", "bench", str(model), *ONE_THREAD, *sizes, *cost, "--format", "json"]
    )
    assert found.exit_code == 0, found.output
    row = json.loads(found.stdout)
    before, after = row["perplexity_float32"], row["perplexity_int4"]
    assert before != after
    assert row["perplexity_change_percent"] == pytest.approx(100 * (after / before - 1), abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine-arg", "max_model_length=5"], "Did you mean 'max_model_len'?"),
        (["--engine-arg", "max_model_len"], "is not of the form KEY=VALUE"),
        (["--max-model-len", "100000"], "the model was made for at most 256 tokens"),
        (["--temperature", "-1"], "temperature must be at least 0"),
    ],
)
def test_bad_arguments_are_explained_without_a_traceback(
    model: str, arguments: list[str], message: str
) -> None:
    found = CliRunner().invoke(main, ["llm", "chat", model, "--message", "x", *arguments])
    assert found.exit_code != 0
    assert message in found.output
    assert "Traceback" not in found.output


def test_a_missing_model_is_explained(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["llm", "chat", str(tmp_path / "missing"), "--message", "x"])
    assert found.exit_code == 1
    assert str(tmp_path / "missing") in found.output


def test_serve_answers_over_http_until_it_is_interrupted(model: str) -> None:
    command = [
        sys.executable,
        "-m",
        "skate.cli",
        "llm",
        "serve",
        model,
        *ONE_THREAD,
        "--port",
        "0",
        "--name",
        "m",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        assert process.stderr is not None
        url = next(
            found[0] for line in process.stderr if (found := re.search(r"http://\S+/v1", line)) is not None
        )
        openai = pytest.importorskip("openai")
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
            answer = client.completions.create(model="m", prompt="The quick", max_tokens=5)
            assert answer.usage.completion_tokens == 5
        process.send_signal(signal.SIGINT)
        for _ in process.stderr:  # until it ends
            pass
        assert process.wait() == 0
