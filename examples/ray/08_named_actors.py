"""Find an actor by its name, from anywhere.

Shows named actors, one that the first caller creates, namespaces that keep names apart, a detached actor that
stays when nobody holds it, and how it is ended.

Prints:

    four tasks met the same actor: [1, 2, 3, 4]
    names here: bell, visitors
    names in the annex: visitors
    visitors here 4, in the annex 1
    nobody held the bell, and it rang 1 time
    after ray.kill there is no bell: ValueError
"""

# needs: core

import ray
from ray.util import list_named_actors

ray.init(namespace="museum")


@ray.remote
class Counter:
    """Counts up."""

    def __init__(self):
        self.count = 0

    def up(self):
        self.count += 1
        return self.count

    def value(self):
        return self.count


@ray.remote
def enter():
    visitors = Counter.options(name="visitors", get_if_exists=True, lifetime="detached").remote()
    return ray.get(visitors.up.remote())


def ring():
    # The handle goes out of scope when this returns; a detached actor does not.
    bell = Counter.options(name="bell", lifetime="detached").remote()
    ray.get(bell.up.remote())


print("four tasks met the same actor:", sorted(ray.get([enter.remote() for _ in range(4)])))

annex = Counter.options(name="visitors", namespace="annex", lifetime="detached").remote()
ray.get(annex.up.remote())
ring()
everywhere = list_named_actors(all_namespaces=True)
print("names here:", ", ".join(sorted(list_named_actors())))
print(
    "names in the annex:", ", ".join(actor["name"] for actor in everywhere if actor["namespace"] == "annex")
)

here, there = ray.get_actor("visitors"), ray.get_actor("visitors", namespace="annex")
print("visitors here {}, in the annex {}".format(*ray.get([here.value.remote(), there.value.remote()])))

bell = ray.get_actor("bell")
print(f"nobody held the bell, and it rang {ray.get(bell.value.remote())} time")
ray.kill(bell)
try:
    ray.get_actor("bell")
except ValueError as error:
    print("after ray.kill there is no bell:", type(error).__name__)
