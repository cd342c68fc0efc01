"""The programs that measure on a GPU, small, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "bench" / "gpu"
PROGRAM_TIMEOUT_S = (
    280  # each starts several processes that import torch, which takes minutes on a busy machine
)

pytestmark = pytest.mark.timeout(PROGRAM_TIMEOUT_S + 20)


def run(program: str, folder: Path) -> Any:
    """Run a program with its small model, and return the figures that it writes."""
    figures = folder / "figures.json"
    command = [sys.executable, str(PROGRAMS / program), "--tiny", "--rounds", "1", "--out", str(figures)]
    # Threads are of no use to a tiny model, and curves take longer than its training.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "SKATE_TRAIN_CURVES": "0"}
    subprocess.run(
        command, check=True, cwd=folder, env=variables, capture_output=True, timeout=PROGRAM_TIMEOUT_S
    )
    return json.loads(figures.read_text())


def test_both_ways_train_the_same_model_on_the_same_tokens(tmp_path: Path) -> None:
    rounds = run("train_lm.py", tmp_path)["rounds"]
    [plain], [skate] = rounds["plain"], rounds["skate"]
    assert plain["last_loss"] == skate["last_loss"]
    assert plain["parameters"] == skate["parameters"]


def test_text_is_generated_by_skate_and_transformers(tmp_path: Path) -> None:
    found = run("generate.py", tmp_path)
    assert found["skate"]["tokens_per_s"] > 0
    assert found["transformers"]["tokens_per_s"] > 0


def test_a_model_is_fine_tuned_by_skate_and_a_plain_loop(tmp_path: Path) -> None:
    assert run("finetune.py", tmp_path)["ratio"] > 0


def test_streams_continue_beside_long_prompts(tmp_path: Path) -> None:
    found = run("disaggregation.py", tmp_path)
    for kind in ("one", "split"):
        assert found[kind]["beside_long_prompts"]["tokens_per_s"] > 0
        assert found[kind]["beside_long_prompts"]["long_prompts"] > 0
    assert "transfer_ms" in found["split"]["beside_long_prompts"]
