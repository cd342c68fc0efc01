"""What user code does with references, in a driver or inside a task: one random thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.object_ref import INLINE, PENDING, SHARED
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import unpack
from tests.engine.local.state.simulation.links import DirectCall
from tests.engine.local.state.simulation.processes import Frame, Process, Stream, handle
from tests.engine.local.state.simulation.profiles import ACTIONS

if TYPE_CHECKING:
    from tests.engine.local.state.simulation.simulation import Simulation

QUESTIONS = ("tasks", "actors", "workers", "objects", "groups", "jobs", "memory", "available", "environments")
NAMES = ("amy", "bob")


class Users:
    """Acts for all processes."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._choices = world.choices
        actions: dict[str, Callable[[Process, Frame], None]] = {name: getattr(self, name) for name in ACTIONS}
        self._actions = [actions[name] for name in world.profile.weighted_actions()]

    def act(self, process: Process, frame: Frame) -> None:
        """Do one thing, if it can be done."""
        while len(frame.variables) > 8:
            self.drop(process, frame)
        self._choices.pick(self._actions)(process, frame)

    # ------------------------------------------------------------ tasks

    def burst(self, process: Process, frame: Frame) -> None:
        """Submit many tasks without arguments, and keep some of the results."""
        index = self._choices.pick(self._world.task_templates)
        spec = self._world.catalogue[index]
        number = process.template(index)
        if spec.num_returns == 1 and self._choices.chance(70):
            self._submit_private(process, frame, number, spec, 4 + self._choices.below(14))
            return
        for _ in range(4 + self._choices.below(14)):
            task = process.ids.task()
            self._world.submitted(task, frame.task, spec)
            results = self._results(task, spec.num_returns)
            if spec.num_returns == m.STREAMING:
                Stream(process, task, limited=spec.backpressure > 0, report=process.post).closed = True
            for id in results:
                process.add(id, known=True)
            frame.children.append(task)
            process.post(m.Submit(task, number, b"", parent=frame.task), results)
            if spec.num_returns == m.STREAMING:
                process.streams[task].close()
            for id in results:
                if len(frame.variables) < 4:
                    frame.variables.append(id)
                else:
                    process.let_go(id)

    def _submit_private(
        self, process: Process, frame: Frame, number: int, spec: m.TaskTemplate, count: int
    ) -> None:
        """Submit tasks in one message, and keep some of the results."""
        tasks = [process.ids.task() for _ in range(count)]
        for task in tasks:
            self._world.submitted(task, frame.task, spec)
            frame.children.append(task)
            id = process.expect_result(task)
            if len(frame.variables) < 4:
                frame.variables.append(id)
            else:
                process.let_go(id)
        process.post(m.SubmitMany(number, tasks, [b""] * count, frame.task))

    def submit(self, process: Process, frame: Frame) -> None:
        """Submit a task with some arguments."""
        world, choices = self._world, self._choices
        index = choices.pick(world.task_templates)
        spec = world.catalogue[index]
        number = process.template(index)
        needs = choices.some(frame.objects(), 2)
        if needs and choices.chance(10):
            needs.append(needs[0])
        contains = choices.some(frame.variables, 2)
        if spec.num_returns == 1 and not needs and not contains and choices.chance(80):
            self._submit_private(process, frame, number, spec, 1)
            return
        for id in (*needs, *contains):
            process.promote(id)

        def send(args_object: bytes) -> None:
            task = process.ids.task()
            world.submitted(task, frame.task, spec)
            results = self._results(task, spec.num_returns)
            for id in results:
                process.add(id, known=True)
                frame.variables.append(id)
            if spec.num_returns == m.STREAMING:
                frame.streams.append(
                    Stream(process, task, limited=spec.backpressure > 0, report=process.post)
                )
            frame.children.append(task)
            args = world.payload(contains) if not args_object else b""
            process.post(
                m.Submit(
                    task,
                    number,
                    args,
                    list(enumerate(needs)),
                    [] if args_object else contains,
                    args_object,
                    frame.task,
                ),
                results,
            )

        if choices.chance(self._world.profile.large // 3):
            self._write_arguments(process, frame, needs, contains, send)
        else:
            send(b"")

    def _write_arguments(
        self, process: Process, frame: Frame, needs: list[bytes], contains: list[bytes], send: Any
    ) -> None:
        """Put large arguments to shared memory first."""
        id = ids.object_id(process.ids.task(), 1)
        kept = [*needs, *contains]
        for each in kept:
            process.keep(each)

        def written(result: m.Result | None) -> None:
            if result is not None:
                process.add(id, known=True, state=SHARED)
                process.post(
                    m.Register(id, SHARED, segment=result.segment, size=result.size, contains=contains), [id]
                )
                send(id)
                process.let_go(id)
            for each in kept:
                process.let_go(each)

        process.write(id, self._world.size(), contains, written)

    @staticmethod
    def _results(task: bytes, count: int) -> list[bytes]:
        if count == m.DYNAMIC:
            count = 1
        return [ids.object_id(task, index) for index in range(1, count + 1)]

    def cancel(self, process: Process, frame: Frame) -> None:
        """Cancel the task that makes some object."""
        pending = [id for id in frame.objects() if process.refs[id].state == PENDING]
        pending += [stream.task + b"\x01\0\0\0" for stream in frame.streams if stream.total is None]
        if pending:
            task = ids.task_of(self._choices.pick(pending))
            if ids.actor_of(task) is None:
                force = self._choices.chance(30)
                self._world.cancel(process, task, force=force, recursive=self._choices.chance(70))

    # ------------------------------------------------------------ objects

    def put(self, process: Process, frame: Frame) -> None:
        """Store a value, small or large."""
        choices = self._choices
        id = ids.object_id(process.ids.task(), 1)
        contains = choices.some(frame.variables, 2)
        for inner in contains:
            process.promote(inner)
        if not choices.chance(self._world.profile.large):
            data = self._world.payload(contains)
            process.add(id, known=bool(contains), state=INLINE, data=data)
            if contains:
                process.post(m.Register(id, INLINE, data, contains=contains), [id])
            frame.variables.append(id)
            return
        for inner in contains:
            process.keep(inner)

        def written(result: m.Result | None) -> None:
            if result is not None and choices.chance(5):
                process.post(m.Abandon(result.segment))
                result = None
            if result is not None:
                process.add(id, known=True, state=SHARED)
                process.post(
                    m.Register(id, SHARED, segment=result.segment, size=result.size, contains=contains), [id]
                )
                frame.variables.append(id)
            for inner in contains:
                process.let_go(inner)

        process.write(id, self._world.size(), contains, written)

    def drop(self, process: Process, frame: Frame) -> None:
        """Let go of a variable or of a generator."""
        choices = self._choices
        if frame.streams and choices.chance(15):
            stream = choices.pick(frame.streams)
            frame.streams.remove(stream)
            stream.close()
        elif frame.variables:
            process.drop(frame, choices.pick(frame.variables))

    def read(self, process: Process, frame: Frame) -> None:
        """Get a value, and the references in it."""
        objects = frame.objects()
        if not objects:
            return
        id = self._choices.pick(objects)
        reference = process.refs[id]
        if reference.state == PENDING:
            process.subscribe(id)
        elif reference.state == INLINE:
            for inner in self._world.inside(reference.data):
                process.revive(inner, frame)
        elif reference.state == SHARED and len(frame.mappings) < 2 and process.map(id):
            frame.mappings.append(id)
            for inner in process.mapped[id][2]:
                process.revive(inner, frame)

    def unmap(self, process: Process, frame: Frame) -> None:
        """Let go of an array on shared memory."""
        if frame.mappings:
            id = self._choices.pick(frame.mappings)
            frame.mappings.remove(id)
            process.unmap(id)
        elif (process.locations or process.idle) and frame is process.frame:
            process.tidy()

    def free(self, process: Process, frame: Frame) -> None:
        """Free an object for everybody."""
        objects = frame.objects()
        if objects:
            id = self._choices.pick(objects)
            process.promote(id)
            self._world.freed.add(id)
            process.post(m.Free([id]))

    def take_item(self, process: Process, frame: Frame) -> None:
        """Take the next item of a generator."""
        if frame.streams:
            stream = self._choices.pick(frame.streams)
            stream.take(frame)
            if stream.total is not None and stream.taken >= stream.total:
                frame.streams.remove(stream)
                stream.close()

    # ------------------------------------------------------------ actors

    def create_actor(self, process: Process, frame: Frame) -> None:
        """Create an actor."""
        world, choices = self._world, self._choices
        index = choices.pick(world.actor_templates)
        number = process.template(index)
        needs = choices.some(frame.objects(), 1)
        contains = choices.some(frame.variables, 1)
        for id in (*needs, *contains):
            process.promote(id)
        actor = process.ids.actor()
        detached = choices.chance(world.profile.detached)
        options = m.ActorOptions(max_restarts=choices.pick((0, 0, 1, 2)), detached=detached)
        if choices.chance(40):
            options.name = choices.pick(NAMES)
            options.get_if_exists = choices.chance(50)
        own = handle(actor)
        args = world.payload(contains)
        slots: list[tuple[int | str, bytes]] = list(enumerate(needs))
        process.links[actor].created_here()
        if not options.name:
            process.add(own, known=True)
            frame.variables.append(own)
            process.post(
                m.CreateActor(actor, number, args, options, slots, contains, parent=frame.task), [own]
            )
            return

        def answered(answer: m.Answer) -> None:
            if answer.error:
                return
            existing: bytes = unpack(answer.data)["actor"]
            if existing == actor:
                process.add(own, known=True)
                frame.variables.append(own)
            else:
                process.revive(handle(existing), frame)

        process.exchange(
            lambda request: m.CreateActor(
                actor, number, args, options, slots, contains, request=request, parent=frame.task
            ),
            answered,
        )

    def call(self, process: Process, frame: Frame) -> None:
        """Call a method of an actor."""
        choices = self._choices
        actors = frame.actors()
        if not actors:
            return
        actor = choices.pick(actors)
        count = choices.pick((1, 1, 1, 2, 0, m.STREAMING))
        task = process.ids.call(actor)
        contains = choices.some(frame.variables, 2)
        for id in contains:
            process.promote(id)
        call = DirectCall(task, count, self._world.payload(contains), process.number)
        call.dependencies = choices.some(frame.objects(), 1)
        call.retries = choices.pick((0, 0, 1))
        call.results = self._results(task, count)
        for id in call.results:
            process.add(id, known=False)
            frame.variables.append(id)
        call.kept = [handle(actor), *contains, *call.dependencies, *call.results]
        for id in call.kept:
            process.keep(id)
        if count == m.STREAMING:
            # How far the reader has come matters only to generators with a limit; these have none.
            call.stream = Stream(process, task, limited=False, report=lambda _: None)
            frame.streams.append(call.stream)
        process.links[actor].submit(call)

    def kill_actor(self, process: Process, frame: Frame) -> None:
        """Kill an actor."""
        actors = frame.actors()
        if actors:
            actor = self._choices.pick(actors)
            self._world.excuse_actor(actor)
            process.post(m.KillActor(actor, no_restart=self._choices.chance(60)))

    def find_actor(self, process: Process, frame: Frame) -> None:
        """Look an actor up by name."""

        def answered(answer: m.Answer) -> None:
            if not answer.error:
                process.revive(handle(unpack(answer.data)["actor"]), frame)

        text = f"\n{self._choices.pick(NAMES)}"
        process.exchange(lambda request: m.Ask(request, "actor by name", text=text), answered)

    # ------------------------------------------------------------ placement groups, views

    def create_group(self, process: Process, frame: Frame) -> None:
        """Reserve a placement group, and wait for it."""
        world, choices = self._world, self._choices
        bundles = [dict(choices.pick(world.bundles)) for _ in range(1 + choices.below(2))]
        group = process.ids.group()
        detached = choices.chance(world.profile.detached)

        def answered(answer: m.Answer) -> None:
            assert not answer.error
            world.group_created(group, len(bundles))

        process.exchange(
            lambda request: m.CreateGroup(request, group, bundles, "PACK", detached=detached), answered
        )
        if choices.chance(50):
            id = ids.object_id(process.ids.task(), 1)
            process.add(id, known=True)
            frame.variables.append(id)
            process.post(m.WatchGroup(group, id, world.payload([])), [id])

    def remove_group(self, process: Process, frame: Frame) -> None:
        """Remove a placement group."""
        if self._world.groups:
            process.post(m.RemoveGroup(self._choices.pick(self._world.groups)))

    def ask(self, process: Process, frame: Frame) -> None:
        """Look at the node's tables, or ask why an object is not there."""
        choices = self._choices
        question, subject = choices.pick(QUESTIONS), b""
        if frame.variables and choices.chance(40):
            question, subject = "why", choices.pick(frame.variables)

        def answered(answer: m.Answer) -> None:
            assert not answer.error, answer

        process.exchange(lambda request: m.Ask(request, question, subject), answered)
