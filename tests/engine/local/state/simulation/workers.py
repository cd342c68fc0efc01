"""A fake worker: runs tasks one after the other, or becomes an actor and answers calls."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.object_ref import ERROR, INLINE, SHARED
from skate._engine.local.session.task_progress import run_id
from skate._engine.local.wire import messages as m
from skate._engine.local.worker.main import MAX_COALESCED_RESULTS
from tests.engine.local.state.simulation.processes import PAGE, Frame, Process

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.links import DirectCall
    from tests.engine.local.state.simulation.simulation import Simulation

TASK, CREATION, CALL = "task", "creation", "call"


class Work:
    """What a worker is running."""

    def __init__(self, kind: str, task: bytes, count: int, run: Any) -> None:
        self.kind = kind
        self.task = task
        self.count = count  # results, or STREAMING or DYNAMIC
        self.run = run
        self.frame = Frame(task)
        self.missing: list[bytes] = []  # shared arguments that are not mapped yet
        self.begun = False
        self.busy = False  # waiting for the node in the middle of something
        self.results: list[m.Result] = []
        self.made = 0
        self.blocked: list[bytes] | None = None
        self.cancelled = False
        self.spec: m.TaskTemplate | None = None


class Worker(Process):
    """A worker process."""

    def __init__(self, world: Simulation, number: int, job: bytes) -> None:
        super().__init__(world, number, job)
        self.queue: deque[Any] = deque()
        self.work: Work | None = None
        self.templates: dict[int, m.TaskTemplate] = {}
        self.leaving = False
        self.actor = b""
        self.serving = False  # an actor whose constructor has run
        self.calls: deque[DirectCall] = deque()
        self.consumed: dict[bytes, m.Consumed] = {}
        self.runs: dict[bytes, int] = {}  # function -> how often it ran here, for max_calls
        self.finished: set[bytes] = set()  # runs, not tasks
        self._coalesced = 0  # results that wait for others to travel with
        self._flushed = False  # whether all was sent, because there was nothing to do
        self.last_begun = b""
        self.handlers.update(
            {
                m.Define: self._define,
                m.Run: self._given,
                m.RunMany: self._given_many,
                m.Become: self._given,
                m.Recall: lambda _: self.hand_back(),
                m.CancelRunning: self._cancel,
                m.Exit: self._exit,
                m.Consumed: self.reader_moved,
                m.SendEvents: self._send_events,
            }
        )
        self.post(m.Hello("worker", 1000 + number, number, f"w{number}"))

    # ------------------------------------------------------------ messages

    def _define(self, message: m.Define) -> None:
        self.templates[message.number] = message.template

    def _given(self, message: Any) -> None:
        run = message.run if isinstance(message, m.Become) else message
        assert run.template in self.templates, "a task came before its template"
        self.queue.append(message)

    def _given_many(self, message: m.RunMany) -> None:
        for task, args in zip(message.tasks, message.args, strict=True):
            self._given(m.Run(task, message.template, args, depth=message.depth))

    def hand_back(self) -> None:
        """Give back the tasks that have not been started."""
        back = [run for run in self.queue if isinstance(run, m.Run)]
        if not back:
            return
        for run in back:
            self.queue.remove(run)
        self.post(m.HandBack([run.task for run in back]))
        self.unsent = 0  # it leaves before another task can come

    def _cancel(self, message: m.CancelRunning) -> None:
        for run in self.queue:
            if isinstance(run, m.Run) and run.task == message.task:
                self.queue.remove(run)
                self.post(m.Done(run.task, [self.world.cancelled_error(run.task)], failed="cancelled"))
                return
        work = self.work
        if work is not None and work.task == message.task:
            work.cancelled = True
            if message.recursive:
                for child in work.frame.children:
                    self.world.cancel(self, child, force=False, recursive=True)
        else:
            self.unsent = 0

    def _exit(self, _: m.Exit) -> None:
        self.leaving = True

    def reader_moved(self, message: m.Consumed) -> None:
        """Remember how far the reader of a generator has come, also before the generator starts."""
        before = self.consumed.get(message.task)
        if before is not None and before.closed:
            return
        self.consumed[message.task] = message

    def _send_events(self, message: m.SendEvents) -> None:
        self.post(m.Events([], message.request))

    # ------------------------------------------------------------ running

    def can_act(self) -> bool:
        """Return whether there is something to do."""
        if self.work is None:
            return bool(self.queue or self.calls or self.leaving or self.locations or self.idle)
        return not self.work.busy and super().can_act()

    def act(self) -> bool:
        """Do one thing; return False if there is nothing to do now."""
        if self.work is None:
            return self._begin_next()
        work = self.work
        if work.busy or self.waits_for_answer():
            return False
        if not work.begun:
            return self._map_arguments(work)
        if work.blocked is not None:
            return self._look_up(work)
        return self._go_on(work)

    def _begin_next(self) -> bool:
        if self.leaving and not self.calls:
            if any(link.owes for link in self.links.values()):
                return False
            self.post(m.Goodbye())
            self.world.end(self, 0)
            return True
        if self.queue and not self.leaving:
            message = self.queue.popleft()
            if self._flushed:
                self.unsent = 0
                self._flushed = False
            if isinstance(message, m.Become):
                self.actor = message.actor
                work = Work(CREATION, message.run.task, 1, message.run)
                work.frame = self.frame
                self.last_begun = run_id(message.run.task, message.run.attempt)
                self.world.creation_started(self)
            else:
                work = Work(TASK, message.task, self.templates[message.template].num_returns, message)
                work.spec = self.templates[message.template]
                self.last_begun = run_id(message.task, message.attempt)
                self.world.started(self, message.task)
            self.work = work
            self._take_arguments(work, work.run.args, work.run.arguments, work.run.args_object)
            return True
        if self.calls:
            call = self.calls.popleft()
            work = Work(CALL, call.task, call.count, call)
            self.work = work
            self._take_arguments(work, call.args, call.arguments, call.args_object)
            return True
        if self.locations or self.idle:
            self.tidy()
            return True
        return False

    def _take_arguments(
        self, work: Work, args: bytes, arguments: list[m.Argument], args_object: bytes
    ) -> None:
        frame = work.frame
        work.missing = list(dict.fromkeys(a.id for a in arguments if a.state == SHARED))
        if args_object:
            work.missing.append(args_object)
        for id in work.missing:
            self.expect(id)
        for inner in self.world.inside(args):
            self.revive(inner, frame)
        for argument in arguments:
            if argument.state == ERROR:
                self.world.error_as_argument(work.task)
            elif argument.state == INLINE:
                for inner in self.world.inside(argument.data):
                    self.revive(inner, frame)
        if not work.missing:
            work.begun = True

    def _map_arguments(self, work: Work) -> bool:
        for id in list(work.missing):  # one after the other
            found = self.map(id)
            if found is False:
                return False
            if found is None:
                for missing in work.missing:
                    self.let_go(missing)
                work.missing = []
                work.begun = True
                self._fail(work, retry=False)
                return True
            work.missing.remove(id)
            work.frame.mappings.append(id)
            self.let_go(id)  # the mapping refers to it now
            for inner in self.mapped[id][2]:
                self.revive(inner, work.frame)
        work.begun = not work.missing
        return work.begun

    def _go_on(self, work: Work) -> bool:
        choices = self.world.choices
        if work.cancelled and work.kind != CREATION and (choices.calm or choices.chance(50)):
            self._finish_cancelled(work)
            return True
        if choices.calm:
            self._generate(work) if work.count == m.STREAMING else self._succeed(work)
            return True
        what = choices.below(20)
        if what < 8:
            self.world.users.act(self, work.frame)
        elif what < 10 and work.kind != CREATION:
            self._block(work)
        elif what == 10 and work.kind == CALL:
            self._exit_actor(work)
        elif what == 11 and work.kind == TASK and choices.chance(30):
            self.world.end(self, 1)  # the function called sys.exit: no result, just the end
        elif work.count == m.STREAMING:
            self._generate(work)
        elif what < 18:
            self._succeed(work)
        else:
            self._fail(work, retry=choices.chance(60))
        return True

    # ------------------------------------------------------------ blocking

    def _block(self, work: Work) -> None:
        waited = self.world.choices.some(work.frame.objects(), 2)
        for id in waited:
            self.subscribe(id)
        if self.queue and not self.actor:
            self.hand_back()
        work.blocked = waited
        self.post(m.Blocked(work.task, waited))

    def _look_up(self, work: Work) -> bool:
        assert work.blocked is not None
        ready = all(self.refs[id].state for id in work.blocked if id in self.refs)
        if work.count == m.STREAMING and work.blocked == []:
            ready = self._may_generate(work)
        elif self.world.choices.calm:
            ready = True  # the time is up
        if ready or work.cancelled or self.world.choices.chance(10):
            work.blocked = None
            self.post(m.Unblocked(work.task))
            return True
        return False

    # ------------------------------------------------------------ results

    def _succeed(self, work: Work) -> None:
        """Make the next result, and send them all when the last is made."""
        count = 1 if work.count == m.DYNAMIC or work.kind == CREATION else work.count
        choices = self.world.choices
        if len(work.results) >= count:
            self._send_results(work)
            return
        frame = work.frame
        id = ids.object_id(work.task, len(work.results) + 1)
        contains = choices.some(frame.variables, 2) if work.kind != CREATION else []
        if work.count == m.DYNAMIC:
            contains = contains + self._register_dynamic(work)
        for inner in contains:
            self.promote(inner)
        if work.kind != CREATION and choices.chance(self.world.profile.large):
            self._write_result(work, id, contains)
        else:
            work.results.append(m.Result(INLINE, self.world.payload(contains), contains=contains))
            self._succeed(work)

    def _write_result(self, work: Work, id: bytes, contains: list[bytes]) -> None:
        work.busy = True

        def written(result: m.Result | None) -> None:
            work.busy = False
            if result is None:
                self._abandon_results(work)
                self._fail(work, retry=False)
            else:
                work.results.append(result)
                self._succeed(work)

        self.write(id, self.world.size(), contains, written)

    def _register_dynamic(self, work: Work) -> list[bytes]:
        made = []
        for index in range(2, 2 + self.world.choices.below(3)):
            id = ids.object_id(work.task, index)
            if id in self.refs:  # made by an earlier attempt
                self.keep(id)
            else:
                self.add(id, known=True, state=INLINE, data=self.world.payload([]))
            self.post(m.Register(id, INLINE, self.refs[id].data), [id])
            work.frame.variables.append(id)
            made.append(id)
        return made

    def _abandon_results(self, work: Work) -> None:
        for result in work.results:
            if result.segment:
                self.post(m.Abandon(result.segment))
        work.results = []

    def _send_results(self, work: Work) -> None:
        if work.kind == CALL:
            self._reply(work, m.Reply(work.task, work.results))
            return
        done = m.Done(work.task, work.results, self.world.now, self.world.seconds())
        if work.kind == CREATION:
            self.post(done)
            self.work = None
            self.serving = True
            return
        self._report(work, done)

    def _report(self, work: Work, done: m.Done) -> None:
        assert work.spec is not None
        if work.spec.max_calls:
            self.runs[work.spec.function] = self.runs.get(work.spec.function, 0) + 1
            if self.runs[work.spec.function] >= work.spec.max_calls:
                done.last = True
                self.leaving = True
        self.finished.add(self.last_begun)
        self._post_outcome(done)
        last_attempt = work.run.attempt == work.spec.max_retries
        if self.queue and self._coalesced < MAX_COALESCED_RESULTS and not last_attempt:
            self._coalesced += 1
        else:
            self._coalesced = 0
            if self.queue:
                self.unsent = 0  # what runs next may end this process, and must not take this with it
        self._flushed = not self.queue
        self._end_work(work)

    def _post_outcome(self, done: m.Done) -> None:
        """Send small values together."""
        small = len(done.results) == 1 and done.results[0].state == INLINE and not done.results[0].contains
        if not small or done.failed or done.last or done.count:
            self.post(done)
            return
        last = self.outbox[-1][1] if self.outbox and self.unsent else None
        if not isinstance(last, m.DoneMany):
            last = m.DoneMany([], [], [], [])
            self.post(last)
        last.tasks.append(done.task)
        last.values.append(done.results[0].data)
        last.started.append(done.started)
        last.seconds.append(done.seconds)

    def _end_work(self, work: Work) -> None:
        frame = work.frame
        while frame.variables and self.world.choices.chance(8):
            self.frame.variables.append(frame.variables.pop())  # kept in a global
        self.consumed.pop(work.task, None)
        self.work = None
        self.end_frame(frame)

    def _fail(self, work: Work, *, retry: bool) -> None:
        error = m.Result(ERROR, self.world.user_error())
        if work.kind == CREATION:
            self.post(m.Done(work.task, [error], self.world.now, failed="ValueError"))
            self.work = None
            self.leaving = True
            return
        if work.kind == CALL:
            count = work.made if work.count == m.STREAMING else 0
            self._reply(
                work, m.Reply(work.task, [error] * max(1, work.count), retry and work.run.retries > 0, count)
            )
            return
        assert work.spec is not None
        if work.count == m.DYNAMIC and retry:
            self._register_dynamic(work)  # what it made before it failed
        done = m.Done(work.task, [error] * max(1, work.count), self.world.now, self.world.seconds())
        done.failed = "ValueError"
        done.retry = retry and bool(work.spec.retry_exceptions)
        done.count = work.made
        self._report(work, done)

    def _finish_cancelled(self, work: Work) -> None:
        error = self.world.cancelled_error(work.task)
        if work.kind == CALL:
            count = work.made if work.count == m.STREAMING else 0
            self._reply(work, m.Reply(work.task, [error] * max(1, work.count), count=count))
        elif work.kind == TASK:
            done = m.Done(work.task, [error] * max(1, work.count), failed="cancelled", count=work.made)
            self._report(work, done)

    # ------------------------------------------------------------ generators

    def _may_generate(self, work: Work) -> bool:
        window = work.spec.backpressure if work.spec is not None else 0
        moved = self.consumed.get(work.task)
        if moved is not None and moved.closed:
            return True
        return not window or work.made - (moved.count if moved is not None else 0) < window

    def _generate(self, work: Work) -> None:
        choices = self.world.choices
        if not self._may_generate(work):
            work.blocked = []
            self.post(m.Blocked(work.task, []))
            return
        moved = self.consumed.get(work.task)
        if choices.calm or work.made >= 4 or (moved is not None and moved.closed) or choices.chance(25):
            if choices.chance(20):
                self._fail(work, retry=choices.chance(60))
            elif work.kind == CALL:
                self._reply(work, m.Reply(work.task, [], count=work.made))
            else:
                done = m.Done(work.task, [], self.world.now, self.world.seconds(), count=work.made)
                self._report(work, done)
            return
        contains = choices.some(work.frame.variables, 1)
        for inner in contains:
            self.promote(inner)
        if choices.chance(self.world.profile.large):
            work.busy = True

            def written(result: m.Result | None) -> None:
                work.busy = False
                if result is None:
                    self._fail(work, retry=False)
                else:
                    self._yield(work, result)

            self.write(ids.object_id(work.task, work.made + 1), self.world.size(), contains, written)
        else:
            self._yield(work, m.Result(INLINE, self.world.payload(contains), contains=contains))

    def _yield(self, work: Work, result: m.Result) -> None:
        work.made += 1
        if work.kind == TASK:
            self.post(m.Item(work.task, work.made, result))
        elif result.state == SHARED or result.contains:
            self.post(m.ReplyVia(work.run.caller, m.Reply(work.task, [result]), work.made))
        else:
            self.world.reply_directly(self, work.run.caller, m.CallItem(work.task, work.made, result))

    # ------------------------------------------------------------ actors

    def _reply(self, work: Work, reply: m.Reply) -> None:
        """Answer directly, or by way of the node when the node must know something first."""
        if work.frame.borrowed or any(r.state == SHARED or r.contains for r in reply.results):
            self.post(m.ReplyVia(work.run.caller, reply))
        else:
            self.world.reply_directly(self, work.run.caller, reply)
        self._end_work(work)

    def _exit_actor(self, work: Work) -> None:
        self.world.excuse_actor(self.actor)
        error = m.Result(ERROR, self.world.user_error())
        count = work.made if work.count == m.STREAMING else 0
        self._reply(work, m.Reply(work.task, [error] * max(1, work.count), count=count))
        self.post(m.ActorExit(self.actor, "exit_actor"))
        self.calls.clear()
        self.leaving = True
        self.serving = False


__all__ = ["CALL", "CREATION", "PAGE", "TASK", "Work", "Worker"]
