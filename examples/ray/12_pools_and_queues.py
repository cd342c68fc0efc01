"""Share work between a fixed number of actors, hand it over through a queue, or keep using `multiprocessing`.

Shows an ActorPool that gives each free actor the next item, a Queue between producers and a consumer, one with a
limit, and a Pool with the interface of the standard library.

Prints:

    in order: ada bob cyd dee eve
    as they come, sorted: ada bob cyd dee eve
    actors that worked: 2 of 2
    through the queue: 8 items, none lost
    a queue of 2 that is full: Full
    squares from a Pool: [0, 1, 4, 9, 16, 25]
"""

# needs: core

import ray
from ray.util import ActorPool
from ray.util.multiprocessing import Pool
from ray.util.queue import Full, Queue

NAMES = ["Ada", "BOB", "cyd", "Dee", "EVE"]


@ray.remote
class Clerk:
    """Writes names in small letters, and remembers how many."""

    def __init__(self):
        self.written = 0

    def write(self, name):
        self.written += 1
        return name.lower()

    def count(self):
        return self.written


@ray.remote
def produce(queue, numbers):
    for number in numbers:
        queue.put(number)


@ray.remote
def consume(queue, count):
    return [queue.get() for _ in range(count)]


def hand_over(clerk, name):
    return clerk.write.remote(name)


clerks = [Clerk.remote() for _ in range(2)]
pool = ActorPool(clerks)
print("in order:", *pool.map(hand_over, NAMES))
print("as they come, sorted:", *sorted(pool.map_unordered(hand_over, NAMES)))
busy = [count for count in ray.get([clerk.count.remote() for clerk in clerks]) if count]
print(f"actors that worked: {len(busy)} of {len(clerks)}")

queue = Queue()
producers = [produce.remote(queue, range(start, 8, 2)) for start in range(2)]
taken = ray.get(consume.remote(queue, 8))
ray.get(producers)
print(f"through the queue: {len(taken)} items,", "none lost" if sorted(taken) == list(range(8)) else taken)
queue.shutdown()

queue = Queue(maxsize=2)
queue.put_nowait_batch(["a", "b"])
try:
    queue.put_nowait("c")
except Full as error:
    print(f"a queue of {queue.size()} that is full:", type(error).__name__)
queue.shutdown()

with Pool(2) as processes:
    print("squares from a Pool:", processes.map(lambda number: number * number, range(6)))
