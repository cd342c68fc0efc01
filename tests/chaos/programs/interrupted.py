"""A program that repeats one operation until Ctrl-C interrupts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from reporting import ARGUMENTS, report

report("import")
import skate  # noqa: E402

LARGE = 300_000


@skate.remote
def double(number: int) -> int:
    return 2 * number


@skate.remote
def sleep() -> None:
    time.sleep(1000)


@skate.remote
def letters() -> Any:
    while True:
        yield "a"


@skate.remote(num_cpus=0)
class Echo:
    def echo(self, value: Any) -> Any:
        return value


class Busy:
    def __init__(self) -> None:
        self.echo = Echo.remote()
        skate.get(self.echo.echo.remote(0))

    def submit(self) -> None:
        while True:
            double.remote(1)

    def get(self) -> None:
        skate.get(sleep.remote())

    def gets(self) -> None:
        number = 0
        while True:
            number += 1
            check(skate.get(double.remote(number)), 2 * number)

    def batches(self) -> None:
        while True:
            check(skate.get([double.remote(n) for n in range(100)]), [2 * n for n in range(100)])

    def wait(self) -> None:
        skate.wait([sleep.remote()])

    def waits(self) -> None:
        while True:
            pending: list[Any] = [double.remote(n) for n in range(20)]
            while pending:
                _, pending = skate.wait(pending)

    def calls(self) -> None:
        number = 0
        while True:
            number += 1
            check(skate.get(self.echo.echo.remote(number)), number)

    def objects(self) -> None:
        while True:
            check(len(skate.get(skate.put(bytes(LARGE)))), LARGE)

    def stream(self) -> None:
        for reference in letters.remote():
            check(skate.get(reference), "a")

    def dataset(self) -> None:
        iterate(prefetch=1)

    def dataset_alone(self) -> None:
        iterate(prefetch=0)


def iterate(prefetch: int) -> None:
    """Take the first batch of a dataset whose other blocks take longer than anybody waits."""
    import skate.data

    skate.data.DataContext.get_current().small_plan_bytes = 0  # on workers

    def stuck(batch: Any) -> Any:
        if batch["id"][0]:
            time.sleep(1000)
        return batch

    numbers = skate.data.range(100, override_num_blocks=10).map_batches(stuck, batch_size=None, concurrency=2)
    for _ in numbers.iter_batches(batch_size=10, prefetch_batches=prefetch):
        report("batch")


def check(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{found!r:.200} is not {expected!r:.200}")


def survive(times: int) -> None:
    """Be interrupted so often, and see each time that the session is as good as before."""
    busy = Busy()
    work: list[Callable[[], None]] = [busy.gets, busy.batches, busy.waits, busy.calls, busy.objects]
    for number in range(times):
        try:
            report("again")
            work[number % len(work)]()
        except KeyboardInterrupt:
            pass
        check(skate.get([double.remote(n) for n in range(50)]), [2 * n for n in range(50)])
        check(skate.get([busy.echo.echo.remote(n) for n in range(50)]), list(range(50)))
        check(skate.get(skate.put(b"x" * LARGE)), b"x" * LARGE)


def main() -> None:
    what = ARGUMENTS[0]
    if what == "init":
        report("init")  # which also imports the engine
    skate.init(num_cpus=2)
    from skate._engine.local.driver import driver

    # A time-out that ends a wait would hide that the wait has no end.
    driver.NODE_EXIT_TIMEOUT_S = 600.0
    if what in ("import", "init"):
        time.sleep(1000)  # it was over before the interrupt came
    if what == "survive":
        survive(int(ARGUMENTS[1]))
        skate.shutdown()
        report("over")
        return
    busy = Busy()
    report(what)
    if what == "shutdown":
        skate.shutdown()
        report("over")
        time.sleep(1000)
    else:
        getattr(busy, what)()


try:
    main()
except KeyboardInterrupt:
    report("interrupted")
    raise
except BaseException as error:
    report(f"failed: {error!r}")
    sys.stdout.flush()
    raise
