"""Every example of a strategy runs, its model learns, and it learns what one process learns.

One runs as a program of its own. The others run in this process, where torch is loaded, and in one session.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from tests.train.strategies.conftest import EXAMPLES, Weights, assert_equal, read_shards  # noqa: E402

STEPS = 20
LIMIT = 240  # seconds; they take five to thirty where nothing else runs

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(LIMIT + 10)]
Learned = Callable[[int], Weights]


@pytest.fixture
def run_as_program(tmp_path: Path) -> Callable[..., str]:
    """Run an example to its end in a process of its own, and return what it printed."""

    def go(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name), "--storage", str(tmp_path), *arguments],
            cwd=tmp_path,
            env={**os.environ, "SKATE_ENGINE": "local", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"{name} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return go


@pytest.fixture
def run(
    engine: str,
    example: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Run an example in the session of this module, and return what it printed."""
    example("tiny_lm")
    monkeypatch.chdir(tmp_path)

    def go(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, "--storage", str(tmp_path), *arguments])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the frameworks, about themselves
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return go


def kept_in(printed: str) -> list[Path]:
    return [Path(each) for each in re.findall(r"^kept in (.*)$", printed, flags=re.MULTILINE)]


def assert_learned(printed: str) -> None:
    losses = re.findall(r"^loss: (\S+) at first, (\S+) ", printed, flags=re.MULTILINE)
    assert losses, printed
    for first, last in losses:
        assert 5 < float(first) < 6  # of 256 bytes none is likelier than another
        assert float(last) < 3


def test_ddp_as_a_program(run_as_program: Callable[..., str], learned_alone: Learned) -> None:
    printed = run_as_program("ddp.py")
    assert_learned(printed)
    (kept,) = kept_in(printed)
    assert_equal(torch.load(kept / "model.pt"), learned_alone(STEPS))


def test_fsdp2_shards_the_model_and_goes_on_from_its_checkpoint(
    run: Callable[..., str], learned_alone: Learned
) -> None:
    printed = run("fsdp2.py")
    assert_learned(printed)
    assert "steps 10 to 19" in printed
    assert "parameters: 134400, of which the workers hold [67200, 67200]" in printed
    (kept,) = kept_in(printed)
    assert {each.name for each in kept.iterdir()} == {".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert_equal(read_shards(kept, learned_alone(STEPS)), learned_alone(STEPS))


def test_tensor_parallelism_shares_each_layer(run: Callable[..., str], learned_alone: Learned) -> None:
    printed = run("tensor_parallel.py")
    assert_learned(printed)
    assert "a matrix of 64 x 64 is here 32 x 64" in printed
    (kept,) = kept_in(printed)
    assert_equal(read_shards(kept, learned_alone(STEPS)), learned_alone(STEPS))


def test_a_pipeline_has_some_layers_on_each_worker(run: Callable[..., str], learned_alone: Learned) -> None:
    printed = run("pipeline.py")
    assert_learned(printed)
    assert "layers of the workers: [['0', '1'], ['2', '3']]" in printed
    (kept,) = kept_in(printed)
    stages = [torch.load(kept / f"stage_{rank}.pt") for rank in range(2)]
    assert not stages[0].keys() & stages[1].keys()
    assert_equal(stages[0] | stages[1], learned_alone(STEPS))


def test_accelerate_finds_the_workers(run: Callable[..., str], learned_alone: Learned) -> None:
    pytest.importorskip("accelerate")
    from safetensors.torch import load_file

    printed = run("hf_accelerate.py")
    assert_learned(printed)
    assert "Accelerate saw 2 processes" in printed
    (kept,) = kept_in(printed)
    assert {"random_states_0.pkl", "random_states_1.pkl"} <= {each.name for each in kept.iterdir()}
    assert_equal(load_file(kept / "model.safetensors"), learned_alone(STEPS))


@pytest.fixture
def put_together(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Weights]:
    """Read the weights of a checkpoint of DeepSpeed's."""
    pytest.importorskip("deepspeed")
    import tqdm

    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # it would keep a thread

    def read(kept: Path) -> Weights:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own use of what is deprecated
            from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

            return dict(get_fp32_state_dict_from_zero_checkpoint(str(kept)))

    return read


@pytest.mark.parametrize(
    ("stages", "arguments"), [((1, 2, 3), ()), ((2, 3), ("--offload",))], ids=["plain", "offload"]
)
def test_zero_shards_states_and_goes_on_from_its_checkpoint(
    run: Callable[..., str],
    learned_alone: Learned,
    put_together: Callable[[Path], Weights],
    stages: tuple[int, ...],
    arguments: tuple[str, ...],
) -> None:
    printed = run("deepspeed_zero.py", "--stage", *map(str, stages), *arguments)
    assert_learned(printed)
    halves = "parameters: 134400, of which the workers have optimizer states for [67200, 67200]"
    assert printed.count(halves) == len(stages)
    for stage, kept in zip(stages, kept_in(printed), strict=True):
        assert f"stage {stage}, steps 10 to 19" in printed
        assert_equal(put_together(kept), learned_alone(STEPS))


def test_a_pipeline_of_deepspeed_with_zero_1_goes_on_from_its_checkpoint(
    run: Callable[..., str], learned_alone: Learned
) -> None:
    pytest.importorskip("deepspeed")
    printed = run("deepspeed_pipeline.py", "--zero")
    assert_learned(printed)
    assert "steps 10 to 19" in printed
    assert "parameters of the stages: [68160, 66240]" in printed
    (kept,) = kept_in(printed)
    folder = kept / f"global_step{STEPS}"
    found = {
        f"{number}.{name}": value
        for number in range(4)
        for name, value in torch.load(folder / f"layer_{number:02}-model_states.pt").items()
    }
    assert_equal(found, learned_alone(STEPS))
