"""Training in the calling process, in the calling thread: a debugger stops where the training function is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.train import _loop, _session
from skate.train._errors import WorkerGroupError
from skate.train._journal import Journal
from skate.train._messages import CHECKPOINTS, Asked, Finished, Message
from skate.train._questions import Questions
from skate.train._run_context import RunContext
from skate.train._validation import Validations


def train(
    context: RunContext, journal: Journal, validations: Validations, function: Callable[[], Any]
) -> None:
    """Run the training function here, as the only worker.

    Raises:
        WorkerGroupError: It raised.
    """
    journal.begin(1)

    def hear(message: Message) -> None:
        if not isinstance(message, Asked):
            journal.heard(0, message)
            return
        if message.question == CHECKPOINTS:
            session.finish()  # nobody else would store them, or look after validations, while this thread waits
        questions.asked(0, message)
        while questions.is_open:
            _loop.turn([validations, questions])

    datasets = {name: ds() if callable(ds) else ds for name, ds in context.datasets.items()}
    shards = {name: dataset.iterator() for name, dataset in datasets.items()}
    journal.let_go_on([shards])
    assignment = _session.Assignment(
        _session.Place(),
        journal.storage,
        journal.ledger.first,
        journal.start_from,
        shards,
        context.metadata,
        context.validation_config is not None,
    )
    session = _session.Session(assignment, hear, is_local=True)
    questions = Questions(
        journal, 1, lambda _, number, answer: session.answer(number, answer), validates=assignment.validates
    )
    _session.enter(session)
    try:
        with context.backend_config.train_func_context():
            value = function()
        session.finish()
        journal.heard(0, Finished(value))
        journal.ended(0)
    except Exception as error:
        raise WorkerGroupError(f"the training function failed: {error!r}", {0: error}) from error
    finally:
        _session.enter(None)
