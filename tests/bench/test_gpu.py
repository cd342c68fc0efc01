"""The programs that measure on a GPU, small, on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parents[2] / "bench" / "gpu"


def test_both_ways_train_the_same_model_on_the_same_tokens(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(PROGRAMS / "train_lm.py"),
        "--tiny",
        "--rounds",
        "1",
        "--out",
        str(figures),
    ]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=100)
    rounds = json.loads(figures.read_text())["rounds"]
    [plain], [skate] = rounds["plain"], rounds["skate"]
    assert plain["last_loss"] == skate["last_loss"]
    assert plain["parameters"] == skate["parameters"]


def test_text_is_generated_by_skate_and_transformers(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(PROGRAMS / "generate.py"),
        "--tiny",
        "--rounds",
        "1",
        "--out",
        str(figures),
    ]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=100)
    found = json.loads(figures.read_text())
    assert found["skate"]["tokens_per_s"] > 0
    assert found["transformers"]["tokens_per_s"] > 0


def test_a_model_is_fine_tuned_by_skate_and_a_plain_loop(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(PROGRAMS / "finetune.py"),
        "--tiny",
        "--rounds",
        "1",
        "--out",
        str(figures),
    ]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=100)
    assert json.loads(figures.read_text())["ratio"] > 0
