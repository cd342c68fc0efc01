"""One group of workers, from its first word to its last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._config.arguments import opened_datasets
from skate.train._failures import causes
from skate.train._failures.causes import Failure
from skate.train._reports.messages import Asked, Failed, Message, Stored
from skate.train._run import loop
from skate.train._run.elasticity import Growth
from skate.train._run.journal import Journal
from skate.train._run.questions import Questions
from skate.train._run.run_context import RunContext
from skate.train._run.uploads import Uploads
from skate.train._run.validation import Validations
from skate.train._workers import sessions
from skate.train._workers.group import Member, WorkerGroup
from skate.train._workers.supervision import INQUIRY, Supervisor

# A worker whose process dies takes others down with it, whose errors may arrive first: so long is waited for the
# rest, in seconds, to tell the cause from its consequences.
_GRACE = 2.0


class Attempt:
    """Trains with a group until all workers have ended, or one has failed.

    Args:
        context: What the run was set up with.
        journal: Takes what workers report.
        group: The workers.
        validations: Go on beside the training.

    Attributes:
        outgrown_by: How many workers there is room for now, if the group was given up for a larger one.
        ended: The ranks whose training function has come to an end, good or bad.
    """

    def __init__(
        self, context: RunContext, journal: Journal, group: WorkerGroup, validations: Validations
    ) -> None:
        self._context = context
        self._journal = journal
        self._group = group
        self._validations = validations
        self._questions = Questions(
            journal, len(group), self._answer, validates=context.validation_config is not None
        )
        assert context.run_config.failure_config is not None
        self._hang_timeout = context.run_config.failure_config.hang_timeout_s
        self._supervisor = Supervisor(group, self._hang_timeout)
        self._uploads = Uploads(group, journal, context.run_config.failure_config.upload_timeout_s)
        self._growth = Growth(context.scaling_config, len(group), journal)
        self._streams: dict[Any, int] = {}
        self._failures: dict[int, Failure] = {}
        self._deadline: float | None = None
        self._saves = False  # workers have failed, and others are still storing what will be a checkpoint
        self.outgrown_by: int | None = None
        self.ended: set[int] = set()

    def run(self, function: Any) -> dict[int, Failure]:
        """Train, and return the failures by rank: none if the run has finished, or goes on with a larger group.

        Args:
            function: A reference to the training function and what it runs in.

        Raises:
            ControllerError: The workers could not be made ready, and it is not known which of them is to blame.
        """
        group, config = self._group, self._context.backend_config
        backend = config.backend_cls()
        self._journal.begin(len(group))
        assignments = self._assignments()
        try:
            group.assign(assignments, _environments(group, shared=backend.share_cuda_visible_devices))
            if self._context.datasets:
                _share_data_context(group)
            backend.on_start(group, config)
            backend.on_training_start(group, config)
        except RayError as error:
            return {group.rank_of(error): Failure(causes.origin(error), str(error))}
        self._journal.standing.state = f"{len(group)} workers train"
        streams, calls = group.train(function)
        self._streams = dict(zip(streams, range(len(group)), strict=True))
        self._supervisor = Supervisor(group, self._hang_timeout)  # from now on
        self._growth = Growth(self._context.scaling_config, len(group), self._journal)
        self._listen()
        del calls  # until here, nobody else holds on to them
        if not self._failures and self.outgrown_by is None:
            backend.on_shutdown(group, config)
        return self._failures

    def _assignments(self) -> list[sessions.Assignment]:
        context, group, journal = self._context, self._group, self._journal
        shards = context.dataset_config.configure(
            opened_datasets(context.datasets, context.dataset_config),
            len(group),
            [member.actor for member in group.members],
            [member.whereabouts.node_id for member in group.members],
        )
        journal.let_go_on(shards)
        return [
            sessions.Assignment(
                member.place,
                journal.storage,
                journal.ledger.first,
                journal.start_from,
                shards[member.place.world_rank],
                context.metadata,
                context.validation_config is not None,
            )
            for member in group.members
        ]

    def _listen(self) -> None:
        """Take messages until all workers have ended; after the first failure, until what can be saved is."""
        while self._streams and not self._is_over():
            self._validations.awaited_by(self._questions.waiting_for_validations)
            until = None if self._saves else self._deadline
            for stream in loop.turn(self._sides, self._streams, until):
                self._hear(stream)
            if self._supervisor.hung and not self._saves:
                self._failed(self._supervisor.hung)
                self._deadline = time.monotonic()  # the cause is known
            if self._growth.is_due and self._streams and not self._failures:
                self.outgrown_by = self._growth.target
                return

    @property
    def _sides(self) -> list[loop.Side]:
        # Questions last: they may be about what the others have just done.
        watching = self._uploads if self._saves else self._supervisor
        return [watching, self._growth, self._validations, self._questions]

    def _is_over(self) -> bool:
        """Tell whether there was a failure, enough time for others to follow, and nothing is left to be saved."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return False
        living = {rank for rank in self._streams.values() if rank not in self._supervisor.hung}
        self._saves = self._uploads.are_awaited(living)
        return not self._saves

    def _hear(self, stream: Any) -> None:
        rank = self._streams[stream]
        try:
            message = skate.get(next(stream))
        except StopIteration:
            del self._streams[stream]
            self.ended.add(rank)
            if rank in self._failures:
                self._supervisor.ended(rank)
            else:  # what one that failed has not reported is missing
                self._supervisor.returned(rank)
                self._journal.ended(rank)
        except RayError as error:  # the worker is gone
            del self._streams[stream]
            self._failed({rank: Failure(error, str(error))})
        else:
            # Others come first next time: one that never stops to report would drown out their failures.
            self._streams[stream] = self._streams.pop(stream)
            self._supervisor.heard(rank)
            if isinstance(message, Failed):
                self.ended.add(rank)
                self._failed({rank: Failure(message.error, message.text, message.at)})
            else:
                self._take(rank, message)

    def _failed(self, failures: Mapping[int, Failure]) -> None:
        """Note failures; after the first, give the others time to fail too, so that causes come before consequences."""
        for rank in failures:
            self._supervisor.ended(rank)
        self._failures.update(failures)
        if self._deadline is None:
            self._deadline = time.monotonic() + _GRACE
            self._uploads.begin()
            if any(causes.waited_in_vain(each) for each in failures.values()):
                self._deadline += INQUIRY
                self._supervisor.inquire()

    def _take(self, rank: int, message: Message) -> None:
        if isinstance(message, Asked):
            self._questions.asked(rank, message)
        else:
            if isinstance(message, Stored):
                self._uploads.arrived()
            self._journal.heard(rank, message)

    def _answer(self, rank: int, number: int, value: Any) -> None:
        self._group.members[rank].actor.answer.remote(number, value)


def _share_data_context(group: WorkerGroup) -> None:
    """Let datasets that a training function makes by itself have the settings of whoever called `fit`."""
    from skate.data import DataContext  # heavy, and loaded already by whoever has a dataset

    group.execute(DataContext._set_current, DataContext.get_current())


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
