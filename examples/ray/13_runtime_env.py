"""Give workers the variables and files they need: what the driver sets for itself may never reach them.

Shows `runtime_env` for the whole job, for one task and for one actor, variables that add up, and a folder of code that
travels with the job.

Prints:

    the job's variables: token tok-123, region north
    for one task: token tok-123, region south
    for one actor: token of-its-own, region north
    a module from the working_dir: 21 degrees
"""

# needs: core

import os
import tempfile
from pathlib import Path

import ray

folder = tempfile.TemporaryDirectory()
(Path(folder.name) / "thermostat.py").write_text("def target():\n    return 21\n")

ray.init(
    runtime_env={
        "env_vars": {"WEATHER_TOKEN": "tok-123", "WEATHER_REGION": "north"},
        "working_dir": folder.name,
    }
)


def describe():
    return "token {WEATHER_TOKEN}, region {WEATHER_REGION}".format(**os.environ)


@ray.remote
def task():
    return describe()


@ray.remote
class Station:
    """Knows the variables of its process."""

    def describe(self):
        return describe()


@ray.remote
def read_thermostat():
    import thermostat

    return thermostat.target()


print("the job's variables:", ray.get(task.remote()))
south = {"env_vars": {"WEATHER_REGION": "south"}}
print("for one task:", ray.get(task.options(runtime_env=south).remote()))
station = Station.options(runtime_env={"env_vars": {"WEATHER_TOKEN": "of-its-own"}}).remote()
print("for one actor:", ray.get(station.describe.remote()))
print("a module from the working_dir:", ray.get(read_thermostat.remote()), "degrees")
folder.cleanup()
