"""One attempt of a run: trains with one group of workers until they end or fail."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._config.trainer_arguments import open_datasets
from skate.train._failures import causes
from skate.train._failures.causes import Failure
from skate.train._reports.messages import CheckpointStored, Failed, Message, Request
from skate.train._run import event_loop
from skate.train._run.elasticity import GrowthMonitor
from skate.train._run.requests import Requests
from skate.train._run.run_context import RunContext
from skate.train._run.run_state import RunState
from skate.train._run.uploads import Uploads
from skate.train._run.validations import Validations
from skate.train._workers import sessions
from skate.train._workers.group import Member, WorkerGroup
from skate.train._workers.supervision import PROBE_ALL_TIMEOUT_S, Supervisor

# A worker whose process dies takes others down with it, and their errors may arrive first. Seconds to wait for further
# errors, so that a symptom is not mistaken for the cause.
_FURTHER_ERRORS_TIMEOUT_S = 2.0


class Attempt:
    """Trains with a group until all workers have ended, or one has failed.

    Args:
        context: The configuration of the run.
        run_state: Takes the messages of the workers.
        group: The workers.
        validations: The validations of the run.

    Attributes:
        resize_to: The number of workers that fit now, if the attempt ended to make room for a larger group.
        ended: The ranks whose training function has returned or raised.
    """

    def __init__(
        self, context: RunContext, run_state: RunState, group: WorkerGroup, validations: Validations
    ) -> None:
        self._context = context
        self._run_state = run_state
        self._group = group
        self._validations = validations
        self._requests = Requests(
            run_state, len(group), self._reply, validates=context.validation_config is not None
        )
        assert context.run_config.failure_config is not None
        self._hang_timeout = context.run_config.failure_config.hang_timeout_s
        self._supervisor = Supervisor(group, self._hang_timeout)
        self._uploads = Uploads(group, run_state, context.run_config.failure_config.upload_timeout_s)
        self._growth = GrowthMonitor(context.scaling_config, len(group), run_state)
        self._streams: dict[Any, int] = {}
        self._failures: dict[int, Failure] = {}
        self._deadline: float | None = None
        self._saves = False  # workers have failed, and others still store parts of a checkpoint
        self.resize_to: int | None = None
        self.ended: set[int] = set()

    def run(self, function: Any) -> dict[int, Failure]:
        """Train, and return the failures by rank: none if the run has finished, or resumes with a larger group.

        Args:
            function: A reference to the training function and its context manager.

        Raises:
            ControllerError: The workers could not be prepared, and the error belongs to none of them.
        """
        group, config = self._group, self._context.backend_config
        backend = config.backend_cls()
        self._run_state.start_attempt(len(group))
        self._run_state.description.workers_started(
            (each.ranks.world_rank, each.location.pid, each.location.node_id) for each in group.members
        )
        assignments = self._assignments()
        try:
            group.assign(assignments, _environments(group, shared=backend.share_cuda_visible_devices))
            if self._context.datasets:
                _share_data_context(group)
            backend.on_start(group, config)
            backend.on_training_start(group, config)
        except RayError as error:
            return {group.rank_of(error): Failure(causes.unwrap(error), str(error))}
        self._run_state.progress.state = f"{len(group)} workers train"
        streams, calls = group.train(function)
        self._streams = dict(zip(streams, range(len(group)), strict=True))
        self._supervisor = Supervisor(group, self._hang_timeout)  # its clock starts here
        self._growth = GrowthMonitor(self._context.scaling_config, len(group), self._run_state)
        self._process_messages()
        del calls  # these references keep the calls alive until here
        if not self._failures and self.resize_to is None:
            backend.on_shutdown(group, config)
        return self._failures

    def _assignments(self) -> list[sessions.Assignment]:
        context, group, run_state = self._context, self._group, self._run_state
        shards = context.dataset_config.configure(
            open_datasets(context.datasets, context.dataset_config),
            len(group),
            [member.actor for member in group.members],
            [member.location.node_id for member in group.members],
        )
        run_state.resume_datasets(shards)
        return [
            sessions.Assignment(
                member.ranks,
                run_state.storage,
                run_state.ledger.first,
                run_state.start_from,
                shards[member.ranks.world_rank],
                context.metadata,
                context.validation_config is not None,
                trial=context.trial,
            )
            for member in group.members
        ]

    def _process_messages(self) -> None:
        """Handle messages until all workers have ended or, after a failure, until current uploads are complete."""
        while self._streams and not self._is_over():
            self._validations.set_waiting_ranks(self._requests.waiting_for_validations)
            until = None if self._saves else self._deadline
            for stream in event_loop.run_once(self._sources, self._streams, until):
                self._receive(stream)
            if self._supervisor.hung and not self._saves:
                self._add_failures(self._supervisor.hung)
                self._deadline = time.monotonic()  # the cause is known
            if self._growth.should_resize and self._streams and not self._failures:
                self.resize_to = self._growth.target
                return

    @property
    def _sources(self) -> list[event_loop.EventSource]:
        # Requests come last, because replies may depend on what the others have just done.
        watching = self._uploads if self._saves else self._supervisor
        return [watching, self._growth, self._validations, self._requests]

    def _is_over(self) -> bool:
        """Return whether a worker failed, the time for further errors is over, and no upload is worth waiting for."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return False
        alive = {rank for rank in self._streams.values() if rank not in self._supervisor.hung}
        self._saves = self._uploads.should_wait(alive)
        return not self._saves

    def _receive(self, stream: Any) -> None:
        rank = self._streams[stream]
        try:
            message = skate.get(next(stream))
        except StopIteration:
            del self._streams[stream]
            self.ended.add(rank)
            if rank in self._failures:
                self._supervisor.worker_ended(rank)
            else:  # a failed worker has not made all its reports
                self._run_state.description.worker_ended(rank, "finished")
                self._supervisor.worker_returned(rank)
                self._run_state.worker_ended(rank)
        except RayError as error:  # the worker's process has ended
            del self._streams[stream]
            self._add_failures({rank: Failure(error, str(error))})
        else:
            # Move the stream to the end: a worker that reports all the time must not hide the failures of others.
            self._streams[stream] = self._streams.pop(stream)
            self._supervisor.received(rank)
            if isinstance(message, Failed):
                self.ended.add(rank)
                self._add_failures({rank: Failure(message.error, message.text, message.at)})
            else:
                self._handle(rank, message)

    def _add_failures(self, failures: Mapping[int, Failure]) -> None:
        """Record failures. After the first, set a deadline until which further errors are collected."""
        for rank in failures:
            self._supervisor.worker_ended(rank)
            self._run_state.description.worker_ended(rank, "failed")
        self._failures.update(failures)
        if self._deadline is None:
            self._deadline = time.monotonic() + _FURTHER_ERRORS_TIMEOUT_S
            self._uploads.start()
            if any(causes.is_collective_timeout(each) for each in failures.values()):
                self._deadline += PROBE_ALL_TIMEOUT_S
                self._supervisor.probe_all()

    def _handle(self, rank: int, message: Message) -> None:
        if isinstance(message, Request):
            self._requests.received(rank, message)
        else:
            if isinstance(message, CheckpointStored):
                self._uploads.stored()
            self._run_state.received(rank, message)

    def _reply(self, rank: int, number: int, value: Any) -> None:
        self._group.members[rank].actor.reply.remote(number, value)


def _share_data_context(group: WorkerGroup) -> None:
    """Give datasets that a training function creates the settings of the process that called `fit`."""
    from skate.data import DataContext  # a slow import, already done by programs with datasets

    group.execute(DataContext._set_current, DataContext.get_current())


def _environments(group: WorkerGroup, *, shared: bool) -> list[dict[str, str]]:
    """Return the environment variables of each worker: torchrun's ranks, and the GPUs of its node if shared."""
    return [_environment(member, group.members, shared=shared) for member in group.members]


def _environment(member: Member, members: list[Member], *, shared: bool) -> dict[str, str]:
    ranks = member.ranks
    found = {
        "RANK": str(ranks.world_rank),
        "LOCAL_RANK": str(ranks.local_rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_WORLD_SIZE": str(ranks.local_world_size),
        "NODE_RANK": str(ranks.node_rank),
    }
    if shared and member.location.gpu_ids:
        same = [each for each in members if each.location.node_id == member.location.node_id]
        gpus = sorted({gpu for each in same for gpu in each.location.gpu_ids})
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return found
