"""Drives a run: starts workers, listens to them, and starts them again from the latest checkpoint when they fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import skate
from skate.exceptions import RayActorError, RayError
from skate.train import _progress, _session
from skate.train._checkpoint import Checkpoint
from skate.train._collectives import Meeting
from skate.train._errors import ControllerError, TrainingFailedError, WorkerGroupError
from skate.train._group import Member, WorkerGroup
from skate.train._ledger import Completed, Kept, Ledger
from skate.train._messages import Announced, Asked, Failed, Finished, Message, Stored
from skate.train._result import Result
from skate.train._run_context import RunContext
from skate.train._storage import Record, Storage

log = logging.getLogger(__name__)

# A worker whose process dies takes others down with it, whose errors may arrive first: so long is waited for the
# rest, in seconds, to tell the cause from its consequences.
_GRACE = 2.0
_PATIENCE = 60.0  # seconds for the resources of a group to become free


class Controller:
    """One run, from its first worker to its result.

    Args:
        context: What the run was set up with.
        function: The training function, which takes nothing.
        storage: The run's folder.
        resume_from: A checkpoint to begin with.
    """

    def __init__(
        self,
        context: RunContext,
        function: Callable[[], Any],
        storage: Storage,
        resume_from: Checkpoint | None = None,
    ) -> None:
        self._context = context
        self._function = function
        self._storage = storage
        self._resume_from = resume_from
        self._record = Record(context.run_id, config=dict(context.train_loop_config or {}))
        self._ledger = Ledger(1)
        self._values: dict[int, Any] = {}
        self._standing = _progress.Standing(storage.experiment_dir_name)

    # ------------------------------------------------------------ the run

    def run(self) -> Result:
        """Train, and return what came of it.

        Raises:
            TrainingFailedError: The run failed, more often than it may.
            KeyboardInterrupt: The user has ended it; it can be gone on with.
        """
        self._storage.prepare()
        self._go_on()
        lines = _progress.shown(self._standing)
        try:
            if self._context.scaling_config.max_workers == 0:
                self._train_here()
            else:
                while not self._attempt():
                    pass
        except KeyboardInterrupt:
            self._close("interrupted")
            log.warning(
                "interrupted: the run goes on from its latest checkpoint when it is run again: %s", self.path
            )
            raise
        except TrainingFailedError as error:
            self._close("failed", str(error))
            raise
        finally:
            if lines is not None:
                lines.stop()
        self._close("finished")
        return self._result()

    @property
    def path(self) -> str:
        """The run's folder."""
        return self._storage.experiment_fs_path

    def _go_on(self) -> None:
        """Take up a run of the same name that has not finished."""
        found = self._storage.read()
        if found is not None:
            self._record.kept, self._record.next_index = found.kept, found.next_index
            self._record.metrics = found.metrics
            self._storage.begin_history()
            if found.kept:
                log.info("going on from %s", self._storage.path_of(found.kept[-1].name))

    def _attempt(self) -> bool:
        """Train with one group of workers; tell whether the run has finished.

        Raises:
            WorkerGroupError: Workers failed, and it was once too often.
        """
        context = self._context
        size = self._size()
        try:
            group = WorkerGroup(
                context.scaling_config,
                size,
                context.run_config.worker_runtime_env,
                context.backend_config.preload,
                _PATIENCE,
            )
        except RayActorError as error:
            raise ControllerError(error) from error
        if group.is_here:
            group.end()
            self._instead_of(size)
            return True
        try:
            failures = self._train(group)
        finally:
            group.end()
            self._storage.drop(self._ledger.unfinished)
        if not failures:
            return True
        self._count(failures)
        return False

    def _instead_of(self, size: int) -> None:
        """Train without workers, because the engine has but one process.

        Raises:
            TrainingFailedError: Several would have to run at the same time.
        """
        if size > 1:
            raise TrainingFailedError(
                f"{size} workers have to run at the same time, and the inline engine has one process: use "
                "skate.init(engine='local'), or ScalingConfig(num_workers=1) to debug the training function here"
            )
        self._train_here()

    def _size(self) -> int:
        """Return with how many workers to train: as many as there is room for, if that may vary."""
        scaling = self._context.scaling_config
        if not scaling.elasticity_enabled:
            return scaling.max_workers
        free = skate.available_resources()
        fitting = [int(free.get(name, 0) // amount) for name, amount in scaling.bundle.items() if amount]
        return max(scaling.min_workers, min(scaling.max_workers, *fitting or [scaling.max_workers]))

    # ------------------------------------------------------------ one group

    def _train(self, group: WorkerGroup) -> dict[int, _Failure]:
        """Train with a group until all have ended, or one has failed; return the failures."""
        context = self._context
        config = context.backend_config
        backend = config.backend_cls()
        self._begin_ledger(len(group))
        meeting = Meeting(len(group))
        shards = context.dataset_config.configure(
            {name: ds() if callable(ds) else ds for name, ds in context.datasets.items()},
            len(group),
            [member.actor for member in group.members],
            [member.whereabouts.node_id for member in group.members],
        )
        assignments = [
            _session.Assignment(
                member.place,
                self._storage,
                self._ledger.first,
                self._start_from(),
                shards[member.place.world_rank],
                context.metadata,
            )
            for member in group.members
        ]
        group.assign(assignments, _environments(group, shared=backend.share_cuda_visible_devices))
        backend.on_start(group, config)
        backend.on_training_start(group, config)
        self._standing.state = f"{len(group)} workers train"
        streams, calls = group.train(self._function, config.train_func_context)
        failures = self._listen(group, dict(zip(streams, range(len(group)), strict=True)), calls, meeting)
        if not failures:
            backend.on_shutdown(group, config)
        return failures

    def _begin_ledger(self, world: int) -> None:
        keep = self._context.run_config.checkpoint_config
        assert keep is not None
        self._ledger = Ledger(
            world,
            first=self._record.next_index,
            kept=self._record.kept,
            keep=keep.num_to_keep,
            score=keep.checkpoint_score_attribute,
            order=keep.checkpoint_score_order,
        )

    def _start_from(self) -> Checkpoint | None:
        return self._checkpoint(self._record.kept[-1]) if self._record.kept else self._resume_from

    def _checkpoint(self, kept: Kept) -> Checkpoint:
        path = kept.path or self._storage.path_of(kept.name)
        return Checkpoint(path, None if kept.path else self._storage.storage_filesystem)

    def _listen(
        self, group: WorkerGroup, streams: dict[Any, int], calls: list[Any], meeting: Meeting
    ) -> dict[int, _Failure]:
        """Take messages until all streams have ended; after the first failure, for a moment longer."""
        failures: dict[int, _Failure] = {}
        deadline: float | None = None
        while streams:
            patience = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _ = skate.wait(list(streams), num_returns=1, timeout=patience)
            if not ready:
                break
            for stream in ready:
                rank = streams[stream]
                try:
                    message = skate.get(next(stream))
                except StopIteration:
                    del streams[stream]
                    if rank not in failures:  # what one that failed has not reported is missing
                        self._completed(self._ledger.ended(rank))
                    continue
                except RayError as error:  # the worker is gone
                    del streams[stream]
                    failures[rank] = _Failure(error, str(error), 0.0)
                else:
                    if isinstance(message, Failed):
                        failures[rank] = _Failure(message.error, message.text, message.at)
                    else:
                        self._take(group, rank, message, meeting)
                if failures and deadline is None:
                    deadline = time.monotonic() + _GRACE
        del calls
        return failures

    def _take(self, group: WorkerGroup, rank: int, message: Message, meeting: Meeting) -> None:
        match message:
            case Asked(number, question, value):
                for member, asked, answer in self._answered(meeting, rank, number, question, value):
                    group.members[member].actor.answer.remote(asked, answer)
            case _:
                self._heard(rank, message)

    def _answered(
        self, meeting: Meeting, rank: int, number: int, question: str, value: Any
    ) -> list[tuple[int, int, Any]]:
        if question == "checkpoints":
            return [(rank, number, [(self._checkpoint(each), each.metrics) for each in self._ledger.kept])]
        return meeting.arrived(rank, number, question, value)

    def _heard(self, rank: int, message: Message) -> None:
        match message:
            case Announced(metrics, name, path):
                self._standing.heard(rank, metrics)
                self._storage.note(self._ledger.index_of(rank), rank, metrics, time.time())
                self._completed(self._ledger.announced(rank, metrics, name, path))
            case Stored(index, lost):
                self._completed(self._ledger.stored(rank, index, lost))
            case Finished(value):
                self._values[rank] = value
            case _:
                raise AssertionError(f"unexpected {message!r}")

    def _completed(self, done: list[Completed]) -> None:
        for each in done:
            self._record.next_index = each.index + 1
            first = next((metrics for metrics in each.metrics if metrics is not None), None)
            self._record.metrics = first
            if each.lost is not None:
                log.warning(
                    "checkpoint of report %d is lost, and training goes on: %s", each.index, each.lost
                )
                self._storage.drop([f"checkpoint_{each.index:06d}"])
            if each.checkpoint is not None:
                self._record.kept = list(self._ledger.kept)
                self._standing.checkpoint = each.checkpoint.name
                self._storage.write(self._record)
                self._storage.drop(kept.name for kept in each.dropped)
            for callback in self._context.run_config.callbacks or ():
                checkpoint = self._checkpoint(each.checkpoint) if each.checkpoint is not None else None
                callback.after_report(self._context, [dict(m or {}) for m in each.metrics], checkpoint)

    # ------------------------------------------------------------ failures

    def _count(self, failures: dict[int, _Failure]) -> None:
        """Note that workers have failed; go on, or raise."""
        self._record.failures += 1
        self._standing.failures, self._standing.state = self._record.failures, "starting again"
        ordered = sorted(failures.items(), key=lambda each: each[1].at)
        errors = {rank: failure.portable for rank, failure in ordered}
        for callback in self._context.run_config.callbacks or ():
            callback.after_exception(self._context, errors)
        config = self._context.run_config.failure_config
        assert config is not None
        most = config.max_failures
        text = _told(ordered)
        if 0 <= most < self._record.failures:
            raise WorkerGroupError(text, errors) from next(iter(errors.values()))
        start = self._start_from()
        log.warning(
            "%s\nfailure %d of %s: starting again from %s",
            text,
            self._record.failures,
            most if most >= 0 else "any number",
            "the beginning" if start is None else start.path,
        )

    # ------------------------------------------------------------ in this process

    def _train_here(self) -> None:
        """Train in this process, in this thread: a debugger stops where the training function is."""
        self._begin_ledger(1)
        meeting = Meeting(1)

        def hear(message: Message) -> None:
            if isinstance(message, Asked):
                for _, number, answer in self._answered(
                    meeting, 0, message.number, message.question, message.value
                ):
                    session.answer(number, answer)
            else:
                self._heard(0, message)

        datasets = {name: ds() if callable(ds) else ds for name, ds in self._context.datasets.items()}
        shards = {name: dataset.iterator() for name, dataset in datasets.items()}
        assignment = _session.Assignment(
            _session.Place(),
            self._storage,
            self._ledger.first,
            self._start_from(),
            shards,
            self._context.metadata,
        )
        session = _session.Session(assignment, hear)
        _session.enter(session)
        try:
            with self._context.backend_config.train_func_context():
                self._values[0] = self._function()
            session.finish()
            self._completed(self._ledger.ended(0))
        except Exception as error:
            raise WorkerGroupError(f"the training function failed: {error!r}", {0: error}) from error
        finally:
            _session.enter(None)

    # ------------------------------------------------------------ the end

    def _close(self, status: str, error: str | None = None) -> None:
        self._record.status, self._record.error = status, error
        if self._standing.metrics:
            self._record.metrics = self._standing.metrics[min(self._standing.metrics)]
        self._storage.write(self._record)

    def _result(self) -> Result:
        return Result.of(self._storage, self._record, self._values.get(0))


class _Failure:
    """How a worker failed."""

    def __init__(self, error: BaseException, text: str, at: float) -> None:
        self.error = error
        self.text = text
        self.at = at  # 0 for one that died: it comes before all that raised

    @property
    def portable(self) -> Exception:
        return self.error if isinstance(self.error, Exception) else RuntimeError(repr(self.error))


def _told(ordered: list[tuple[int, _Failure]]) -> str:
    """Return the failures as a text, the cause on top."""
    first, *others = ordered
    text = f"rank {first[0]} failed:\n{first[1].text.rstrip()}"
    if others:
        named = "\n".join(f"  rank {rank}: {failure.error!r}" for rank, failure in others)
        text += f"\nafter it, and perhaps because of it:\n{named}"
    return text


def _environments(group: WorkerGroup, *, shared: bool) -> list[dict[str, str]]:
    """Return what each worker finds in its environment: ranks as torchrun gives them, and GPUs to share."""
    return [_environment(member, group.members, shared=shared) for member in group.members]


def _environment(member: Member, members: list[Member], *, shared: bool) -> dict[str, str]:
    place = member.place
    found = {
        "RANK": str(place.world_rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "NODE_RANK": str(place.node_rank),
    }
    if shared and member.whereabouts.gpu_ids:
        same = [each for each in members if each.whereabouts.node_id == member.whereabouts.node_id]
        gpus = sorted({gpu for each in same for gpu in each.whereabouts.gpu_ids})
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return found
