"""The selection of the worker that reports to an experiment tracker."""

from __future__ import annotations

from typing import Any

from skate.train import TrainContext, get_context
from skate.train.error import SessionMisuseError


def current_context() -> TrainContext | None:
    """Return the context of the training function in this process; None outside of one."""
    try:
        return get_context()
    except SessionMisuseError:
        return None


class Disabled:
    """Accepts all calls and does nothing: the tracker of a worker that does not report to it."""

    def __getattr__(self, name: str) -> Any:
        return Disabled()

    def __call__(self, *_: object, **__: object) -> Any:
        return Disabled()

    def __enter__(self) -> Disabled:
        return self

    def __exit__(self, *_: object) -> None:
        return
