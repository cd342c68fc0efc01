"""See what ran, what failed and where the time went.

Shows what a task can learn about itself, lists of tasks and actors with filters, a summary, a custom metric, and
the timeline that Chrome's tracing page and Perfetto draw.

Prints:

    a task knows its name, knead, and that it is of the driver's job: True
    bake: 3 finished, 1 failed
    actors: Oven alive as oven-1
    summary: bake 4, knead 1
    timeline: 4 bars for bake, each with a length: True
"""

# needs: core

import json
import tempfile
import time
from pathlib import Path

import ray
from ray.util.metrics import Counter
from ray.util.state import list_actors, list_tasks, summarize_tasks

ray.init()


@ray.remote
def knead():
    context = ray.get_runtime_context()
    return context.get_task_name(), context.get_job_id()


@ray.remote
def bake(loaf):
    Counter("loaves", description="Loaves that went in").inc()
    if loaf == 3:
        raise RuntimeError("burnt")
    return loaf


@ray.remote
class Oven:
    """Keeps warm."""

    def ready(self):
        return True


def once(condition):
    """Look until there is something to see: what workers did is reported in batches, and nobody says when."""
    while not (seen := condition()):
        time.sleep(0.1)
    return seen


oven = Oven.options(name="oven-1").remote()
ray.get(oven.ready.remote())
name, job = ray.get(knead.remote())
same = job == ray.get_runtime_context().get_job_id()
print(f"a task knows its name, {name}, and that it is of the driver's job: {same}")

loaves = [bake.remote(loaf) for loaf in range(4)]
ray.wait(loaves, num_returns=4)


def baked(state):
    return list_tasks(filters=[("name", "=", "bake"), ("state", "=", state)], detail=True)


finished = once(lambda: len(tasks := baked("FINISHED")) == 3 and tasks)
failed = once(lambda: baked("FAILED"))
print(f"bake: {len(finished)} finished, {len(failed)} failed")

(actor,) = list_actors(filters=[("class_name", "=", "Oven")])
print(f"actors: {actor.class_name} {actor.state.lower()} as {actor.name}")

summary = summarize_tasks()["cluster"]["summary"]
counts = {name: sum(entry["state_counts"].values()) for name, entry in summary.items() if "." not in name}
print("summary:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))


def bars():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        ray.timeline(filename=str(path))
        return [event for event in json.loads(path.read_text()) if event["cat"] == "task::bake"]


drawn = once(lambda: len(found := bars()) == 4 and found)
print(f"timeline: {len(drawn)} bars for bake, each with a length:", all(bar["dur"] > 0 for bar in drawn))
