"""Training in the calling process, in the calling thread: a debugger stops where the training function is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.train._config.arguments import opened_datasets
from skate.train._failures.errors import WorkerGroupError
from skate.train._reports.messages import CHECKPOINTS, MEETINGS, Asked, Finished, Message
from skate.train._run import loop
from skate.train._run.journal import Journal
from skate.train._run.questions import Questions
from skate.train._run.run_context import RunContext
from skate.train._run.validation import Validations
from skate.train._workers import sessions
from skate.train._workers.company import Company


def train(
    context: RunContext,
    journal: Journal,
    validations: Validations,
    function: Callable[[], Any],
    company: Company,
) -> None:
    """Run the training function here, as the only worker, or beside the processes that this one was launched with.

    Raises:
        WorkerGroupError: It raised.
        ValueError: There are datasets, and others to share them with, who cannot be reached.
    """
    if context.datasets and not company.is_alone:
        raise ValueError(
            f"datasets cannot be shared between the {company.place.world_size} processes of a launcher: let Skate "
            "start them with ScalingConfig(num_workers=…), or read the data in the training function"
        )
    journal.begin(1)

    def hear(message: Message) -> None:
        if not isinstance(message, Asked):
            journal.heard(0, message)
            return
        if message.question in MEETINGS:
            session.answer(message.number, company.share(message.value))
            return
        if message.question == CHECKPOINTS:
            session.finish()  # nobody else would store them, or look after validations, while this thread waits
        questions.asked(0, message)
        while questions.is_open:
            validations.awaited_by(questions.waiting_for_validations)
            loop.turn([validations, questions])
        validations.awaited_by([])

    datasets = opened_datasets(context.datasets, context.dataset_config)
    shards = {name: dataset.iterator() for name, dataset in datasets.items()}
    journal.let_go_on([shards])
    assignment = sessions.Assignment(
        company.place,
        journal.storage,
        journal.ledger.first,
        journal.start_from,
        shards,
        context.metadata,
        context.validation_config is not None,
    )
    session = sessions.Session(assignment, hear, is_local=True)
    questions = Questions(
        journal,
        1,
        lambda _, number, answer: session.answer(number, answer),
        validates=assignment.validates and journal.storage.keeps,
    )
    sessions.enter(session)
    try:
        with context.backend_config.train_func_context():
            value = function()
        session.finish()
        journal.heard(0, Finished(value))
        journal.ended(0)
    except Exception as error:
        raise WorkerGroupError(f"the training function failed: {error!r}", {0: error}) from error
    finally:
        sessions.enter(None)
