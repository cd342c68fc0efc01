"""The real Ray in a process where `import ray` means Skate; `tests/test_as_ray.py` has the details."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skate._version import ray_version

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

PROGRAM = """
import pickle
import sys

import skate.as_ray
import ray
from skate._base.alias import real_ray

real = real_ray()
real.init("local", num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)

@real.remote
def divided(a, b):
    return a / b

@real.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

# Ray works, with what it imports on the way, and its errors arrive as its own.
assert real.get(divided.remote(6, 3)) == 2
counter = Counter.remote()
assert real.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
try:
    real.get(divided.remote(1, 0))
except ZeroDivisionError as error:
    assert isinstance(error, real.exceptions.RayTaskError)
    assert type(pickle.loads(pickle.dumps(error.cause))) is ZeroDivisionError
    assert not isinstance(error, ray.exceptions.RayTaskError)
queue = real_ray("ray.util.queue").Queue()
queue.put("through an actor of Ray's")
assert queue.get(timeout=30) == "through an actor of Ray's"
try:
    real.get(Counter.options(num_cpus=99).remote().add.remote(), timeout=0.1)
except real.exceptions.GetTimeoutError as error:
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    print("Ray works")

# The user's imports are Skate's, here and in workers of Skate.
import ray as again
from ray.util.queue import Queue
assert again is ray
assert Queue is skate.util.queue.Queue
assert sys.modules["ray"] is real

@ray.remote
def here():
    import ray
    return ray.__version__, "Skate" in repr(ray), "ray._raylet" in sys.modules

with skate.init(engine="local", num_cpus=1):
    print(*ray.get(here.remote()))

# A worker of Ray, in which its `ray` was imported long before.
@real.remote
def there():
    import sys
    import skate.as_ray
    import ray
    from ray.exceptions import RayTaskError
    from ray.util import ActorPool
    theirs = sys.modules["ray"]
    nested = theirs.remote(lambda: 5).options(num_cpus=0)
    return theirs.get(nested.remote()), RayTaskError is skate.exceptions.RayTaskError, "Skate" in repr(ray)

print(*real.get(there.remote()))
real.shutdown()
"""


def test_ray_works_while_the_users_ray_is_skate(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Ray works", f"{ray_version} True False", "5 True True"]
