"""Helpers for programs that use Tune."""

from __future__ import annotations

import io
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.utils import diagnose_serialization, flatten_dict, validate_save_restore, warn_if_slow
from skate.tune.utils.log import Verbosity
from skate.tune.utils.mock_trainable import MOCK_ERROR_KEY, register_mock_trainable
from skate.tune.utils.util import Tee, retry_fn, unflatten_dict, validate_warmstart
from tests.tune.test_tuner import Counting


def test_the_parts_of_a_function_that_cannot_be_sent_to_workers_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = threading.Event()

    def bad(config: dict[str, Any]) -> None:
        print(event)

    def good(config: dict[str, Any]) -> None:
        print(threading.Event())

    assert diagnose_serialization(bad)
    assert diagnose_serialization(bad) is not True
    assert "event" in capsys.readouterr().out
    assert diagnose_serialization(good) is True


def test_nested_names_are_joined() -> None:
    assert flatten_dict({"a": {"b": {"c": 1}}, "d": [2]}) == {"a/b/c": 1, "d": [2]}
    assert flatten_dict({"a": {"b": 1}}, delimiter=".") == {"a.b": 1}
    assert flatten_dict({"a": [{"b": 1}, 2]}, flatten_list=True) == {"a/0/b": 1, "a/1": 2}


def test_a_delimiter_in_a_name_is_refused_if_it_is_asked_for() -> None:
    assert flatten_dict({"a/b": 1, "c": {"d": 2}}) == {"a/b": 1, "c/d": 2}
    with pytest.raises(ValueError, match="'d/e' contains the delimiter '/'"):
        flatten_dict({"c": {"d/e": 2}}, prevent_delimiter=True)


def test_joined_names_are_separated() -> None:
    nested = {"a": {"b": {"c": 1}}, "d": [2]}
    assert unflatten_dict(flatten_dict(nested)) == nested
    assert unflatten_dict({"a.b": 1}, delimiter=".") == {"a": {"b": 1}}
    with pytest.raises(TypeError, match="'a/b' needs a dict at 'a', which has the value 1"):
        unflatten_dict({"a": 1, "a/b": 2})


def test_points_to_start_with_are_checked() -> None:
    validate_warmstart(["a", "b"], [[1, 2], {"a": 1, "b": 2}], [0.5, 0.6])
    validate_warmstart(["a", "b"], [[1]], None, validate_point_name_lengths=False)
    with pytest.raises(ValueError, match=r"must have the parameters \['a', 'b'\]"):
        validate_warmstart(["a", "b"], [[1]], None)
    with pytest.raises(ValueError, match="has 2 values for 1 points"):
        validate_warmstart(["a"], [[1]], [0.5, 0.6])
    with pytest.raises(TypeError, match="`points_to_evaluate` must be a list, not dict"):
        validate_warmstart(["a"], {"a": 1}, None)  # type: ignore[arg-type]


def test_levels_are_numbers() -> None:
    assert [int(level) for level in Verbosity] == [0, 1, 2, 3]


@pytest.mark.usefixtures("engine")
def test_a_class_that_continues_from_its_checkpoints_is_valid() -> None:
    class Forgetful(Counting):
        def restore(self, checkpoint: tune.Checkpoint | str) -> None:
            return None

    assert validate_save_restore(Counting)
    with pytest.raises(ValueError, match="the result of step 4 has training_iteration=1"):
        validate_save_restore(Forgetful)


def test_a_function_is_called_again_until_it_returns() -> None:
    calls: list[int] = []

    def fail_twice() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("busy")

    assert retry_fn(fail_twice, OSError, sleep_time=0)
    assert len(calls) == 3
    calls.clear()
    assert not retry_fn(fail_twice, [OSError, ValueError], num_retries=2, sleep_time=0)


def test_a_call_that_takes_too_long_counts_as_failed() -> None:
    released = threading.Event()
    assert not retry_fn(lambda: released.wait(60), num_retries=2, sleep_time=0, timeout=0.05)
    released.set()


def test_slow_blocks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with warn_if_slow("sync", threshold=0) as slow:
        pass
    assert slow.too_slow
    assert "`sync` took" in caplog.text
    with warn_if_slow("sync", threshold=60) as slow:
        pass
    assert not slow.too_slow
    with warn_if_slow("sync", threshold=0, disable=True) as slow:
        pass
    assert not slow.too_slow


def test_a_tee_writes_to_both_streams_and_leaves_out_closed_ones() -> None:
    one, other = io.StringIO(), io.StringIO()
    tee = Tee(one, other)
    assert tee.write("a") == 1
    tee.flush()
    assert (one.getvalue(), other.getvalue()) == ("a", "a")
    one.close()
    tee.write("b")
    assert other.getvalue() == "ab"


@pytest.mark.usefixtures("engine")
def test_the_mock_trainable_learns_fails_and_resumes(tmp_path: Path) -> None:
    register_mock_trainable()
    (trial,) = tune.run(
        "mock_trainable",
        config={"height": 10, "width": 2, MOCK_ERROR_KEY: True},
        stop={"training_iteration": 4},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        max_failures=1,
        storage_path=str(tmp_path),
        verbose=0,
    ).trials
    assert trial.num_failures == 1
    assert trial.last_result["episode_reward_mean"] == pytest.approx(10 * math.tanh(2))
