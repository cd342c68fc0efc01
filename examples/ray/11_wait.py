"""Keep a bounded number of tasks under way, and use results in the order in which they come.

Shows `ray.wait` as the heart of a pipeline: a new task starts when one has finished, so that a long list of work
never piles up, and results are used while others are still being made. Also a look without waiting, and a time limit.

Prints:

    40 numbers tried, never more than 4 at once
    primes: 101 103 107 109 113 127 131 137 139
    nothing ready before the door opens: 0 of 2
    a time limit: GetTimeoutError
    the door is open: 2 of 2 ready
"""

# needs: core

import asyncio

import ray

AT_ONCE = 4


@ray.remote
def is_prime(number):
    return number, all(number % divisor for divisor in range(2, number))


@ray.remote
class Door:
    """Lets nobody through until it is opened."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def pass_through(self):
        await self.opened.wait()

    async def open(self):
        self.opened.set()


todo = list(range(101, 141))
under_way, most, primes, tried = [], 0, [], 0
while todo or under_way:
    while todo and len(under_way) < AT_ONCE:
        under_way.append(is_prime.remote(todo.pop(0)))
    most = max(most, len(under_way))
    finished, under_way = ray.wait(under_way, num_returns=1)
    for number, prime in ray.get(finished):
        tried += 1
        primes += [number] if prime else []
print(f"{tried} numbers tried, never more than {most} at once")
print("primes:", *sorted(primes))

door = Door.remote()
guests = [door.pass_through.remote() for _ in range(2)]
ready, _ = ray.wait(guests, num_returns=2, timeout=0)
print(f"nothing ready before the door opens: {len(ready)} of {len(guests)}")
try:
    ray.get(guests, timeout=0.1)
except ray.exceptions.GetTimeoutError as error:
    print("a time limit:", type(error).__name__)
door.open.remote()
ready, _ = ray.wait(guests, num_returns=2)
print(f"the door is open: {len(ready)} of {len(guests)} ready")
