"""Keeps objects and an actor, uses them all the time, and reports on request that they are intact."""

from __future__ import annotations

import os
import select
from typing import Any

from reporting import report

report("importing")
import numpy  # noqa: E402

import skate  # noqa: E402

ROWS = 40_000  # too large to travel in a message


@skate.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


@skate.remote
def total(array: numpy.ndarray[Any, Any]) -> int:
    return int(array.sum())


skate.init(num_cpus=2, log_to_driver=False)
kept = [skate.put(numpy.full(ROWS, number)) for number in range(4)]
counter = Counter.remote()
count = 0
report("started")
while True:
    count += 1
    assert skate.get(counter.add.remote()) == count
    assert skate.get([total.remote(each) for each in kept]) == [ROWS * number for number in range(len(kept))]
    assert skate.get(skate.put(numpy.full(ROWS, count)))[-1] == count
    if select.select([0], [], [], 0)[0]:
        if not os.read(0, 1):
            break  # told to end
        assert [int(array[0]) for array in skate.get(kept)] == [0, 1, 2, 3]
        report("whole")
