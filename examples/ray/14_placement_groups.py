"""Reserve resources for a gang of workers, all of them or none, and let helpers run outside.

Shows a placement group, actors in bundles of their own, what is left for others meanwhile, and the way out of the
group: a worker that fills its bundle cannot start a task in it, and would wait for ever for one that inherits it.

Prints:

    of 3 CPUs the group holds 2, and others have 1
    worker 0 in the group: True
    worker 1 in the group: True
    its helper in the group: False, and it counted 6 letters
    a second gang waits its turn: True
    the first gang is gone, and the second starts: True
"""

# needs: core

import ray
from ray.util.placement_group import (
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(num_cpus=3)


@ray.remote
def count_letters(word):
    return len(word), get_current_placement_group() is not None


@ray.remote(num_cpus=1)
class Worker:
    """Fills its bundle, and lets helpers run elsewhere."""

    def is_in(self, group_id):
        current = get_current_placement_group()
        return current is not None and current.id == group_id

    def ask_helper(self, word):
        outside = PlacementGroupSchedulingStrategy(placement_group=None)
        return ray.get(count_letters.options(scheduling_strategy=outside).remote(word))


gang = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_PACK", name="gang")
ray.get(gang.ready())
held = sum(bundle["CPU"] for bundle in placement_group_table(gang)["bundles"].values())
print(f"of 3 CPUs the group holds {held:.0f}, and others have {ray.available_resources()['CPU']:.0f}")

workers = [
    Worker.options(
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            gang, placement_group_bundle_index=rank, placement_group_capture_child_tasks=True
        )
    ).remote()
    for rank in range(gang.bundle_count)
]
for rank, answer in enumerate(ray.get([worker.is_in.remote(gang.id) for worker in workers])):
    print(f"worker {rank} in the group: {answer}")
letters, inside = ray.get(workers[0].ask_helper.remote("outing"))
print(f"its helper in the group: {inside}, and it counted {letters} letters")

second = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
print("a second gang waits its turn:", not second.wait(timeout_seconds=0.1))
remove_placement_group(gang)  # This also ends its actors.
print("the first gang is gone, and the second starts:", second.wait(timeout_seconds=30))
remove_placement_group(second)
