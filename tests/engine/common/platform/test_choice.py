"""The layer that SKATE_PLATFORM chooses, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = "from skate._engine.common.platform import system; print(system.NAME)"


def chosen(name: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SKATE_PLATFORM": name}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["linux", "portable"])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has both")
def test_a_variable_chooses_the_layer(name: str) -> None:
    assert chosen(name).stdout == f"{name}\n"


def test_each_system_has_a_usual_layer() -> None:
    assert chosen("").stdout == ("linux\n" if sys.platform == "linux" else "portable\n")


def test_an_unknown_layer_is_an_error_with_the_name_of_the_variable() -> None:
    assert "ValueError: SKATE_PLATFORM is 'windows': set it to" in chosen("windows").stderr
