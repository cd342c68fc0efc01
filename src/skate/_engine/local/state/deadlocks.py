"""Deadlocks and starvation: when to look for them, and whom to tell.

The node looks when a process has waited for a moment without a limit of time. Processes answer each other without the
node, so it asks all of them what they wait for, and once more when some seem to be stuck. Those whose two reports are
equal have done nothing in between: between the last report of the first round and the first question of the second,
all of them waited at the same time, which makes the reports a consistent picture. `wait_graph` says what is stuck in
it.

A deadlock ends by an error in one of its members, the last that began to wait. What then goes on may be looked at
again. Starvation is no error, because a program can end it at any time: resources that somebody needs are held by idle
actors and placement groups, and by nobody else. The drivers of the job are warned, once for each kind of request.
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
CHECK_INTERVAL_S = 1.0  # seconds between two looks at least
MAX_CHECK_INTERVAL_S = 10.0  # seconds between two looks while nothing new waits
REPORT_TIMEOUT_S = 2.0  # a process that takes longer to report counts as active
STARVATION_TIMEOUT_S = 5.0  # how long a request for resources waits before a warning
MAX_STARVATION_INTERVAL_S = 300.0  # seconds between two looks at requests that wait, while they are the same
REMEDY = (
    "Kill an actor or drop its handles, remove a placement group, give actors num_cpus=0, or start with more."
)


class Deadlocks:
    """Asks processes what they wait for, and tells those that wait for each other."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._suspects: dict[int, int] = {}  # processes that wait, in the order in which they began to
        self._begun = 0
        self._starved: dict[Key, float] = {}  # requests that wait, and since when
        self._warned: set[Key] = set()
        self._due = 0.0  # when to look next, if somebody is suspected
        self._last = 0.0  # when the last look began
        self._review = 0.0  # when to look next for requests that wait
        self._starvation_interval = STARVATION_TIMEOUT_S  # how long to leave requests alone that wait
        self._interval = CHECK_INTERVAL_S
        self._round = 0
        self._asked: set[int] = set()  # processes that have yet to report in this round
        self._reports: dict[int, m.WaitReport] = {}
        self._before: dict[int, m.WaitReport] | None = None  # in the second round: the reports of the first

    # ------------------------------------------------------------ when to look

    def suspect(self, source: int) -> None:
        """Note that a process has begun to wait without a limit of time."""
        now = self._machine.now
        self._begun += 1
        self._suspects[source] = self._begun
        self._interval = CHECK_INTERVAL_S
        due = max(now + MIN_WAIT_S, self._last + CHECK_INTERVAL_S)
        self._due = due if len(self._suspects) == 1 else min(self._due, due)

    def next_tick(self) -> float | None:
        """Return after how many seconds `tick` should be called, None for not at all."""
        if self._asked:
            return REPORT_TIMEOUT_S
        if self._suspects:
            return max(0.0, self._due - self._machine.now)
        waits = self._machine.scheduler.waiting or self._machine.groups.pending
        return CHECK_INTERVAL_S if waits else None

    def tick(self) -> None:
        """Begin a look that is due, and end one that takes too long."""
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
        """Forget suspects that have gone, or that go on."""
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
        """Return whether a task of the process has said that it waits without a limit of time."""
        peer = self._machine.peers.get(number)
        return peer is not None and bool(peer.waiting_on.keys() - peer.timed)

    def _is_starving(self, now: float) -> bool:
        """Return whether a request has waited so long that its holders are worth a look."""
        machine = self._machine
        if any(p.state is LEASED and p.grant is not None and not p.blocked for p in machine.peers.values()):
            return False  # a task runs, which gives its resources back
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
        """Return the requests for resources that wait."""
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
        """Take the report of a process."""
        if message.round != self._round or source not in self._asked:
            return
        self._asked.discard(source)
        self._reports[source] = message
        self._asked &= self._machine.peers.keys()
        if not self._asked:
            self._conclude()

    def _conclude(self) -> None:
        """All have reported that will: look at what they say."""
        before = self._before
        if before is not None:
            self._reports = {n: r for n, r in self._reports.items() if n in before and _equal(r, before[n])}
        starts: list[Key] = [(PROCESS, number) for number in self._suspects]
        found = WaitGraph(self._machine, self._reports, starts)
        if before is None and any(start in found.stuck for start in starts):
            self._before = self._reports
            self._ask(set(self._reports))
            return
        told = before is not None and self._tell(found)
        if not told:
            self._warn()
        if before is None:
            # A driver or an asynchronous actor says once that it waits, and not that it has gone on. A task says
            # both, and says that it waits a moment before its process notes the wait.
            for number, report in self._reports.items():
                if not report.waits and not report.awaited and not self._is_blocked(number):
                    self._suspects.pop(number, None)
        self._interval = CHECK_INTERVAL_S if told else min(2 * self._interval, MAX_CHECK_INTERVAL_S)
        self._due = self._machine.now + self._interval
        self._reports = {}
        self._before = None

    # ------------------------------------------------------------ telling

    def _tell(self, found: WaitGraph) -> bool:
        """End each deadlock by an error in one of its members; return whether there was one."""
        known: set[Key] = set()
        told = False
        for number in list(self._suspects):
            if (PROCESS, number) not in found.stuck:
                continue
            way, cycle = found.graph.follow((PROCESS, number))
            if known.isdisjoint(way + cycle):
                told = self._tell_one(cycle or way, number) or told
            known.update(way, cycle)
        return told

    def _tell_one(self, cycle: Sequence[Any], suspect: int) -> bool:
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
        """Warn of requests that only idle actors and placement groups keep from being met."""
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
                self._machine.warn(f"Nothing that runs now will end this wait: {who}. {REMEDY}", job)


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
    """Return the cycle from a process on, and back to it."""
    start = next((index for index, key in enumerate(cycle) if key == (PROCESS, number)), None)
    if start is None:
        return list(cycle)
    return [*cycle[start:], *cycle[:start], cycle[start]]
