"""Private names of Ray that packages use: each exists under its path in Ray and behaves as there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What each name is touched by.
TOUCHED = {
    "ray._private.services.get_node_ip_address": "Modin",
    "ray._private.state.actors": "Daft",
    "ray._private.state.cluster_resources": "pyDVL",
    "ray._private.worker.global_worker": "Daft",
    "ray._raylet.ObjectRef": "Hamilton",
    "ray.internal.free": "AutoGluon",
    "ray.util.client.ray": "Daft",
    "ray.WORKER_MODE": "Daft",
    "ray._common.test_utils.wait_for_condition": "Ray's guides",
    "ray._private.test_utils.wait_for_condition": "older programs",
    "ray.data._internal.compute.TaskPoolStrategy": "pypaimon",
    "ray.data._internal.delegating_block_builder.DelegatingBlockBuilder": "Ray's guides",
    "ray.data._internal.util.is_null": "Ray's guides",
    "ray.data._internal.execution.interfaces.TaskContext": "every sink outside Ray",
    "ray.data._internal.util._check_import": "lance-ray",
    "ray.data._internal.util.call_with_retry": "lance-ray",
    "ray.serve._private.common.DeploymentID": "Ray's guides",
    "ray.train._internal.session.get_session": "older programs",
    "ray.tune.search.sample._BackwardsCompatibleNumpyRng": "FLAML",
    "ray.state.state": "older programs",
    "ray.worker.global_worker": "older programs",
    "ray.experimental.state.api.list_tasks": "older programs",
    "ray.experimental.tqdm_ray.tqdm": "Daft",
}

KINDS_OF_PROCESS = """
import ray
from ray._private.worker import global_worker

assert global_worker.mode is None
assert not global_worker.connected

@ray.remote
def mode():
    return ray._private.worker.global_worker.mode

ray.init(num_cpus=1)
assert global_worker.connected
assert global_worker.mode == ray.SCRIPT_MODE != ray.WORKER_MODE
assert ray.get(mode.remote()) == ray.WORKER_MODE
assert not ray.util.client.ray.get_context().is_connected()
assert not ray.util.client.ray.is_connected()
"""

TABLE_OF_ACTORS = """
import os
import ray
from ray._private.state import actors

@ray.remote
class Clerk:
    def pid(self):
        return os.getpid()

clerk = Clerk.options(name="the clerk").remote()
pid = ray.get(clerk.pid.remote())
row = actors(clerk._actor_id.hex())
assert row["Address"]["NodeID"] == ray.get_runtime_context().get_node_id()
assert (row["Pid"], row["Name"], row["State"], row["ActorClassName"]) == (pid, "the clerk", "ALIVE", "Clerk")
assert actors() == {clerk._actor_id.hex(): row}
assert actors("ff" * 16) == {}
"""


TABLES_OF_STATE = """
import numpy
import ray
import ray.state
from ray._private.internal_api import memory_summary
from ray.experimental.state.api import list_nodes

ray.init(num_cpus=2)
(node,) = list_nodes()
assert ray.state.state is ray._private.state.state
assert [row["NodeID"] for row in ray.state.state.node_table()] == [node.node_id]
assert ray.state.total_resources_per_node()[node.node_id]["CPU"] == 2
assert ray.state.available_resources_per_node() == {node.node_id: ray.available_resources()}
assert ray.state.state.actor_table() == ray.state.state.placement_group_table() == {}

reference = ray.put(numpy.ones(1 << 17))
text = memory_summary(units="MB")
assert reference.hex() in text and "MB in use" in text, text
assert reference.hex() not in memory_summary(stats_only=True)
for wrong in ({"units": "MiB"}, {"sort_by": "AGE"}):
    try:
        memory_summary(**wrong)
    except ValueError as error:
        assert repr(*wrong.values()) in str(error)
    else:
        raise AssertionError(wrong)
"""

OTHER_LANGUAGES = """
import ray
from ray import cross_language
from ray.exceptions import CrossLanguageError

for refused in (
    lambda: ray.java_function("a.B", "c"),
    lambda: ray.java_actor_class("a.B"),
    lambda: cross_language.cpp_function("plus"),
    lambda: cross_language.cpp_actor_class("make", "Counter"),
):
    try:
        refused()
    except CrossLanguageError as error:
        assert "runs Python only" in str(error), error
    else:
        raise AssertionError(refused)
"""

ASKING_FOR_MORE = """
import logging
import ray
from ray.autoscaler.sdk import request_resources

ray.init(num_cpus=2)
warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
ray.logger.addHandler(handler)
request_resources(num_cpus=1, bundles=[{"CPU": 1}])
assert warnings == []
request_resources(bundles=[{"CPU": 2}, {"CPU": 1, "GPU": 1}])
(text,) = warnings
assert "{'CPU': 3, 'GPU': 1}" in text and "{'CPU': 2.0, 'GPU': 0}" in text, text
for wrong, kind in (
    ({"num_cpus": "2"}, TypeError),
    ({"bundles": {"CPU": 1}}, TypeError),
    ({"bundles": [{"CPU": 1}], "bundle_label_selectors": []}, ValueError),
):
    try:
        request_resources(**wrong)
    except kind:
        continue
    raise AssertionError(wrong)
"""


def run(program: str, folder: Path) -> None:
    """Run a Ray program on Skate; fail if it fails."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "skate.cli", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_each_name_is_found_under_rays_path(tmp_path: Path) -> None:
    lookups = (f"import {module}; {name}" for name in TOUCHED for module in [name.rpartition(".")[0]])
    run("\n".join(lookups), tmp_path)


WAITING = """
from ray._common.test_utils import wait_for_condition

answers = [False, ZeroDivisionError(), 1]

def is_over(kind):
    answer = answers.pop(0)
    if isinstance(answer, kind):
        raise answer
    return answer

wait_for_condition(is_over, kind=Exception, retry_interval_ms=1)
assert answers == []
answers[:] = [ZeroDivisionError()]
try:
    wait_for_condition(is_over, timeout=0, kind=Exception)
except RuntimeError as error:
    assert isinstance(error.__cause__, ZeroDivisionError)
else:
    raise AssertionError
"""

BUILDING_BLOCKS = """
import pyarrow
from ray.data._internal.delegating_block_builder import DelegatingBlockBuilder

builder = DelegatingBlockBuilder()
builder.add({"x": 1})
builder.add({"x": 2})
builder.add_block(pyarrow.table({"x": [3]}))
builder.add_batch({"x": [4, 5]})
assert builder.num_rows() == 5
assert builder.get_estimated_memory_usage() == 40
assert builder.build(additional_blocks=[pyarrow.table({"x": [6]})]).to_pydict() == {"x": [1, 2, 3, 4, 5, 6]}
assert DelegatingBlockBuilder().build().num_rows == 0
"""

NAMING_A_FUNCTION = """
import ray

@ray.remote
def double(number):
    return 2 * number

assert double._function_name.endswith(".double")
double._function_name = "step 1"  # smallpond names its tasks so
assert double._function_name == "step 1"
assert ray.get([double.remote(1), double.options(num_cpus=1).remote(2)]) == [2, 4]
"""

MISSING_VALUES = """
import numpy
import ray
from ray.data._internal.util import is_null
from ray.data.aggregate import AggregateFnV2
from ray.data.block import AggType, Block, BlockAccessor, KeyType, T, U

assert is_null(None) and is_null(numpy.float32("nan"))
assert not is_null(0) and not is_null("") and not is_null(numpy.zeros(2))

class Largest(AggregateFnV2):
    def __init__(self, on, ignore_nulls):
        super().__init__("largest", on=on, ignore_nulls=ignore_nulls, zero_factory=lambda: None)

    def aggregate_block(self, block: Block) -> AggType:
        largest = BlockAccessor.for_block(block).max(self._target_col_name, self._ignore_nulls)
        return None if is_null(largest) else largest

    def combine(self, current: AggType, new: AggType) -> AggType:
        return new if is_null(current) else max(current, new)

    def finalize(self, accumulator):
        return accumulator

ray.init(num_cpus=1)
rows = ray.data.from_items([{"x": 3}, {"x": None}, {"x": 8}])
assert rows.aggregate(Largest("x", ignore_nulls=True)) == {"largest": 8}
assert is_null(rows.aggregate(Largest("x", ignore_nulls=False))["largest"])
"""

RETRYING = """
from ray.data._internal.util import _check_import, call_with_retry

class Reader:
    answers = [OSError("IO: busy"), OSError("IO: late"), "block", ValueError("no such column")]

    def read(self, *path, **options):
        self.asked = (path, options)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

reader = Reader()
read = reader.read
assert call_with_retry(read, "read", [r"OSError: IO: \\w+"], 3, 0.01, "a", part=1) == "block"
assert reader.asked == (("a",), {"part": 1})
reader.answers[:0] = [OSError("IO(busy")]
for error, options in (
    (OSError, {"match": ["IO(busy"], "max_attempts": 1}),
    (ValueError, {"match": ["IO(busy"]}),
):
    try:
        call_with_retry(read, "read", **options)
    except error:
        pass
    else:
        raise AssertionError(error)
assert reader.answers == []

_check_import(reader, module="json", package="json")
try:
    _check_import(reader, module="no_such_module", package="no-such-package")
except ImportError as error:
    assert str(error) == "Reader needs no-such-package: pip install no-such-package", error
else:
    raise AssertionError
"""

NO_SUCH_NAME = """
import ray
import ray.util.client

assert not hasattr(ray.internal, "no_such_name")
assert not hasattr(ray.util.client, "no_such_name")
"""

PROGRAMS = {
    "function": NAMING_A_FUNCTION,
    "nulls": MISSING_VALUES,
    "absence": NO_SUCH_NAME,
    "retrying": RETRYING,
    "waiting": WAITING,
    "blocks": BUILDING_BLOCKS,
    "process": KINDS_OF_PROCESS,
    "actors": TABLE_OF_ACTORS,
    "state": TABLES_OF_STATE,
    "languages": OTHER_LANGUAGES,
    "autoscaler": ASKING_FOR_MORE,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_private_name_says_is_true(program: str, tmp_path: Path) -> None:
    run(program, tmp_path)
