"""Tasks, actors, large objects, generators and nested gets, in a loop, while processes are killed.

Errors with which Skate reports a death are expected here; any other error, and a wrong value, ends the program.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

from reporting import ARGUMENTS, report, told_to_end

report("importing")
import skate  # noqa: E402
from skate import exceptions  # noqa: E402

LARGE = 300_000
DEATHS = (exceptions.WorkerCrashedError, exceptions.RayActorError, exceptions.OwnerDiedError)


@skate.remote
def double(number: int) -> int:
    return 2 * number


@skate.remote
def fill(letter: bytes) -> bytes:
    return letter * LARGE


@skate.remote
def count(data: bytes, letter: bytes) -> int:
    return data.count(letter)


@skate.remote
def nested(depth: int) -> int:
    if depth == 0:
        return 0
    return 1 + skate.get(nested.remote(depth - 1))


@skate.remote
def countdown(start: int) -> Any:
    for number in range(start):
        yield number if number % 2 else bytes(LARGE)


@skate.remote
def leave_behind() -> int:
    """Start processes that nobody waits for: one in our process group, and one in a session of its own."""
    subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    return subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, start_new_session=True).pid


@skate.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Echo:
    def echo(self, value: Any) -> Any:
        return value

    def delegate(self, number: int) -> int:
        return skate.get(double.remote(number))


@skate.remote(num_cpus=0)
class Fragile:
    async def echo(self, value: Any) -> Any:
        return value


class Work:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps = [
            self.tasks,
            self.objects,
            self.nesting,
            self.streaming,
            self.actors,
            self.waiting,
            self.leaving,
        ]
        self.left = 0

    def begin(self) -> None:
        skate.init(num_cpus=2)
        report("started")
        self.echo = Echo.remote()
        self.kept = skate.put(b"k" * LARGE)

    def tasks(self) -> None:
        numbers = [self.random.randrange(1000) for _ in range(self.random.choice((1, 20, 200)))]
        check(skate.get([double.remote(n) for n in numbers]), [2 * n for n in numbers])

    def objects(self) -> None:
        check(skate.get(count.remote(fill.remote(b"x"), b"x")), LARGE)
        check(skate.get(count.remote(self.kept, b"k")), LARGE)
        check(len(skate.get(skate.put(bytes(LARGE)))), LARGE)

    def nesting(self) -> None:
        check(skate.get(nested.remote(4)), 4)

    def streaming(self) -> None:
        values = [skate.get(ref) for ref in countdown.remote(6)]
        check([v if isinstance(v, int) else len(v) for v in values], [LARGE, 1, LARGE, 3, LARGE, 5])

    def actors(self) -> None:
        check(skate.get([self.echo.echo.remote(n) for n in range(20)]), list(range(20)))
        check(skate.get(self.echo.delegate.remote(21)), 42)
        fragile = Fragile.remote()
        check(skate.get(fragile.echo.remote(b"y" * LARGE)), b"y" * LARGE)

    def waiting(self) -> None:
        pending: list[Any] = [double.remote(n) for n in range(10)]
        while pending:
            ready, pending = skate.wait(pending)
            skate.get(ready)

    def leaving(self) -> None:
        if self.left < 2:
            self.left += 1
            skate.get(leave_behind.remote())


def check(found: object, expected: object) -> None:
    if found != expected:
        print(f"WRONG VALUE: {found!r:.200} is not {expected!r:.200}", flush=True)
        sys.stdout.flush()
        os._exit(4)


def main() -> None:
    work = Work(int(ARGUMENTS[0]))
    step = work.begin
    while not told_to_end():
        try:
            step()
            step = work.random.choice(work.steps)
        except DEATHS as error:
            print(f"{step.__name__}: {type(error).__name__}", flush=True)
        except exceptions.NodeDiedError:
            print(f"{step.__name__}: the node has died", flush=True)
            skate.shutdown()
            step = work.begin
        except exceptions.RaySystemError as error:
            # Killed while it started: nobody is there to say more than that.
            if step != work.begin or "did not start" not in str(error):
                raise
            print(f"begin: {error}", flush=True)
        report("step")
    check(skate.get(double.remote(21)), 42)
    skate.shutdown()
    report("over")


main()
