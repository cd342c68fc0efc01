"""Training in the calling process and thread, so that a debugger stops in the training function."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import skate
from skate._api import tracing
from skate.train._config.trainer_arguments import open_datasets
from skate.train._failures.errors import WorkerGroupError
from skate.train._reports.messages import CHECKPOINTS, COLLECTIVES, Finished, Message, Request
from skate.train._run import event_loop
from skate.train._run.requests import Requests
from skate.train._run.run_context import RunContext
from skate.train._run.run_state import RunState
from skate.train._run.validations import Validations
from skate.train._workers import sessions
from skate.train._workers.local_group import LocalWorkerGroup


def train(
    context: RunContext,
    run_state: RunState,
    validations: Validations,
    function: Callable[[], Any],
    local_group: LocalWorkerGroup,
) -> None:
    """Run the training function here, as the only worker or beside the other processes of a launcher.

    Raises:
        WorkerGroupError: The training function raised.
        ValueError: The run has datasets, and there are other processes, which cannot be given their parts.
    """
    if context.datasets and not local_group.is_alone:
        raise ValueError(
            f"datasets cannot be split between the {local_group.ranks.world_size} processes of a launcher: let Skate "
            "start them with ScalingConfig(num_workers=…), or read the data in the training function"
        )
    run_state.start_attempt(1)
    node = skate.get_runtime_context().get_node_id() if skate.is_initialized() else ""
    run_state.description.workers_started([(local_group.ranks.world_rank, os.getpid(), node)])

    def handle(message: Message) -> None:
        if not isinstance(message, Request):
            run_state.received(0, message)
            return
        if message.kind in COLLECTIVES:
            session.reply(message.number, local_group.broadcast(message.value))
            return
        if message.kind == CHECKPOINTS:
            session.finish()  # nothing stores checkpoints or runs validations while this thread waits
        requests.received(0, message)
        while requests.is_open:
            validations.set_waiting_ranks(requests.waiting_for_validations)
            event_loop.run_once([validations, requests])
        validations.set_waiting_ranks([])

    datasets = open_datasets(context.datasets, context.dataset_config)
    shards = {name: dataset.iterator() for name, dataset in datasets.items()}
    run_state.resume_datasets([shards])
    assignment = sessions.Assignment(
        local_group.ranks,
        run_state.storage,
        run_state.ledger.first,
        run_state.start_from,
        shards,
        context.metadata,
        context.validation_config is not None,
        trial=context.trial,
    )
    session = sessions.Session(assignment, handle, is_local=True)
    requests = Requests(
        run_state,
        1,
        lambda _, number, value: session.reply(number, value),
        validates=assignment.validates and run_state.storage.is_primary,
    )
    sessions.set_current(session)
    try:
        rank = local_group.ranks.world_rank
        span = tracing.span(f"train worker {rank}", {"world_rank": rank})
        with span, context.backend_config.train_func_context():
            value = function()
        session.finish()
        run_state.received(0, Finished(value))
        run_state.worker_ended(0)
        run_state.description.worker_ended(local_group.ranks.world_rank, "finished")
    except Exception as error:
        run_state.description.worker_ended(local_group.ranks.world_rank, "failed")
        raise WorkerGroupError(f"the training function failed: {error!r}", {0: error}) from error
    finally:
        sessions.set_current(None)
