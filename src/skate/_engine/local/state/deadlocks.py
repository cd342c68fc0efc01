"""Detection of deadlocks and starvation.

The node checks when a process has waited for a moment without a time-out. Processes call each other without the node,
so it asks all of them for their waits, and asks again when some seem to be stuck. Processes whose two reports are
equal have done nothing in between: between the last report of the first round and the first request of the second,
all of them waited at the same time, which makes the reports a consistent snapshot. `wait_graph` finds the stuck
processes in it.

A deadlock ends by an error in one of its members, the last one that began to wait. The processes that continue may be
checked again. Starvation is not an error, because a program can end it at any time: idle actors and placement groups
hold all the resources that a request needs. The drivers of the job get a warning, once per kind of request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skate._engine.common import failures
from skate._engine.local.state.records import ACTOR, IDLE, LEASED, SchedulingClass
from skate._engine.local.state.wait_chain import describe_chain, describe_holders
from skate._engine.local.state.wait_graph import DEMAND, PROCESS, WAIT, WaitGraph
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine
    from skate._engine.local.state.waits import Key

MIN_WAIT_S = 0.1  # seconds that a process must have waited
CHECK_INTERVAL_S = 1.0  # the shortest interval between two checks
MAX_CHECK_INTERVAL_S = 10.0  # the longest interval between two checks, while no new process waits
REPORT_TIMEOUT_S = 2.0  # a process that takes longer to report counts as active
STARVATION_TIMEOUT_S = 5.0  # seconds that a request for resources waits before a warning
MAX_STARVATION_INTERVAL_S = 300.0  # the longest interval between two checks of the same waiting requests
REMEDY = (
    "Kill an actor or drop its handles, remove a placement group, give actors num_cpus=0, or start with more."
)


class Deadlocks:
    """Requests the waits of all processes, and ends deadlocks among them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._suspects: dict[int, int] = {}  # waiting processes, in the order in which they began to wait
        self._begun = 0
        self._starved: dict[Key, float] = {}  # waiting requests, and since when they wait
        self._warned: set[Key] = set()
        self._due = 0.0  # time of the next check, if a process is suspected
        self._last = 0.0  # time of the last check
        self._review = 0.0  # time of the next check of waiting requests
        self._starvation_interval = STARVATION_TIMEOUT_S  # interval until waiting requests are checked again
        self._interval = CHECK_INTERVAL_S
        self._round = 0
        self._asked: set[int] = set()  # processes that have yet to report in this round
        self._reports: dict[int, m.WaitReport] = {}
        self._before: dict[int, m.WaitReport] | None = None  # in the second round: the reports of the first

    # ------------------------------------------------------------ timing

    def suspect(self, source: int) -> None:
        """Note that a process has begun to wait without a time-out."""
        now = self._machine.now
        self._begun += 1
        self._suspects[source] = self._begun
        self._interval = CHECK_INTERVAL_S
        due = max(now + MIN_WAIT_S, self._last + CHECK_INTERVAL_S)
        self._due = due if len(self._suspects) == 1 else min(self._due, due)

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        if self._asked:
            return REPORT_TIMEOUT_S
        if self._suspects:
            return max(0.0, self._due - self._machine.now)
        waits = self._machine.scheduler.waiting or self._machine.groups.pending
        return CHECK_INTERVAL_S if waits else None

    def tick(self) -> None:
        """Start a check that is due, and end one that takes too long."""
        now = self._machine.now
        if self._asked:
            if now - self._last >= REPORT_TIMEOUT_S:
                self._asked = set()
                self._conclude()
            return
        if self._suspects and now >= self._due:
            self._drop_suspects()
            if self._suspects:
                self._look()
        elif now >= self._review:
            self._review = now + CHECK_INTERVAL_S
            if self._is_starving(now):
                self._look()

    def _look(self) -> None:
        self._before = None
        self._ask(set(self._machine.peers))

    def _drop_suspects(self) -> None:
        """Drop suspects that have ended or continued."""
        peers = self._machine.peers
        for number in list(self._suspects):
            peer = peers.get(number)
            if peer is None or not (
                peer.is_driver
                or (peer.actor is not None and peer.actor.options.is_async)
                or self._is_blocked(number)
            ):
                del self._suspects[number]

    def _is_blocked(self, number: int) -> bool:
        """Return whether a task of the process is blocked without a time-out."""
        peer = self._machine.peers.get(number)
        return peer is not None and bool(peer.waiting_on.keys() - peer.timed)

    def _is_starving(self, now: float) -> bool:
        """Return whether a request has waited so long that its holders should be checked."""
        machine = self._machine
        if any(p.state is LEASED and p.grant is not None and not p.blocked for p in machine.peers.values()):
            return False  # a running task will return its resources
        waiting = self._requests()
        if not waiting and not self._starved:
            return False
        if any(key not in self._starved for key in waiting):
            self._starvation_interval = STARVATION_TIMEOUT_S
        self._starved = {key: self._starved.get(key, now) for key in waiting}
        limit = now - STARVATION_TIMEOUT_S
        starving = self._last <= now - self._starvation_interval and any(
            since <= limit and key not in self._warned for key, since in self._starved.items()
        )
        if starving:
            self._starvation_interval = min(2 * self._starvation_interval, MAX_STARVATION_INTERVAL_S)
        return starving

    def _requests(self) -> list[Key]:
        """Return the waiting requests for resources."""
        waiting: list[Key] = [(DEMAND, cls) for cls in self._machine.scheduler.waiting if cls.queue]
        return waiting + [(DEMAND, group.id) for group in self._machine.groups.pending]

    # ------------------------------------------------------------ asking

    def _ask(self, numbers: set[int]) -> None:
        self._round += 1
        self._last = self._machine.now
        self._reports = {}
        for number in numbers & self._machine.peers.keys():
            peer = self._machine.peers[number]
            if not peer.info.get("observer") and peer.state in (IDLE, LEASED, ACTOR):
                self._asked.add(number)
                self._machine.send(number, m.WaitProbe(self._round))
        if not self._asked:
            self._conclude()

    def report(self, source: int, message: m.WaitReport) -> None:
        """Handle the report of a process."""
        if message.round != self._round or source not in self._asked:
            return
        self._asked.discard(source)
        self._reports[source] = message
        self._asked &= self._machine.peers.keys()
        if not self._asked:
            self._conclude()

    def _conclude(self) -> None:
        """Evaluate the reports of a round."""
        before = self._before
        if before is not None:
            self._reports = {n: r for n, r in self._reports.items() if n in before and _equal(r, before[n])}
        starts: list[Key] = [(PROCESS, number) for number in self._suspects]
        found = WaitGraph(self._machine, self._reports, starts)
        if before is None and any(start in found.stuck for start in starts):
            self._before = self._reports
            self._ask(set(self._reports))
            return
        ended = before is not None and self._end_deadlocks(found)
        if not ended:
            self._warn()
        if before is None:
            # A driver or an asynchronous actor reports the begin of a wait once, but not its end. A task reports both,
            # and reports the begin a moment before its process records the wait.
            for number, report in self._reports.items():
                if not report.waits and not report.awaited and not self._is_blocked(number):
                    self._suspects.pop(number, None)
        self._interval = CHECK_INTERVAL_S if ended else min(2 * self._interval, MAX_CHECK_INTERVAL_S)
        self._due = self._machine.now + self._interval
        self._reports = {}
        self._before = None

    # ------------------------------------------------------------ ending deadlocks

    def _end_deadlocks(self, found: WaitGraph) -> bool:
        """End each deadlock by an error in one of its members; return whether there was one."""
        known: set[Key] = set()
        ended = False
        for number in list(self._suspects):
            if (PROCESS, number) not in found.stuck:
                continue
            way, cycle = found.graph.follow((PROCESS, number))
            if known.isdisjoint(way + cycle):
                ended = self._end_deadlock(cycle or way, number) or ended
            known.update(way, cycle)
        return ended

    def _end_deadlock(self, cycle: Sequence[Any], suspect: int) -> bool:
        members = [key[1] for key in cycle if key[0] == PROCESS and self._can_fail(key[1])]
        if not members:
            members = [suspect] if self._can_fail(suspect) else []
        if not members:
            return False
        victim = max(members, key=lambda number: self._suspects.get(number, 0))
        report = self._reports[victim]
        text = failures.deadlock(describe_chain(self._machine, _rotate(cycle, victim)))
        inside = [key[2] for key in cycle if key[0] == WAIT and key[1] == victim]
        if report.waits:
            message = m.Deadlock(text, wait=inside[0] if inside else report.waits[0][0])
        else:
            message = m.Deadlock(text, object=report.awaited[0])
        self._machine.send(victim, message)
        return True

    def _can_fail(self, number: int) -> bool:
        report = self._reports.get(number)
        return report is not None and bool(report.waits or report.awaited)

    def _warn(self) -> None:
        """Warn of requests that only idle actors and placement groups block."""
        late = self._machine.now - STARVATION_TIMEOUT_S
        waiting = set(self._requests())  # some may have been met since
        starts = [k for k, since in self._starved.items() if since <= late and k in waiting - self._warned]
        found = WaitGraph(self._machine, self._reports, starts, passive=False)
        for key in starts:
            if key in found.stuck:
                self._warned.add(key)
                asking: Any = key[1]  # type: ignore[index]
                is_task = isinstance(asking, SchedulingClass)
                job = asking.job if is_task else self._machine.groups.table[asking].creator_job
                who = describe_holders(self._machine, asking, found.holders(key))
                self._machine.warn(f"No running task will end this wait: {who}. {REMEDY}", job)


def _equal(one: m.WaitReport, other: m.WaitReport) -> bool:
    return (one.turn, one.waits, one.awaited, one.calls, one.sent, one.unsent, one.active, one.cancelled) == (
        other.turn,
        other.waits,
        other.awaited,
        other.calls,
        other.sent,
        other.unsent,
        other.active,
        other.cancelled,
    )


def _rotate(cycle: Sequence[Any], number: int) -> list[Any]:
    """Return the cycle starting at a process, and back to it."""
    start = next((index for index, key in enumerate(cycle) if key == (PROCESS, number)), None)
    if start is None:
        return list(cycle)
    return [*cycle[start:], *cycle[:start], cycle[start]]
