"""The context of a trial."""

from __future__ import annotations

from skate.tune._workers.session import need_session
from skate.tune.execution.placement_groups import PlacementGroupFactory

__all__ = ["TuneContext", "get_context"]


class TuneContext:
    """Facts about the trial that runs in this process."""

    def get_trial_name(self) -> str:
        """Return the name of the trial."""
        return need_session("get_trial_name()").assignment.trial_name

    def get_trial_id(self) -> str:
        """Return the id of the trial."""
        return need_session("get_trial_id()").assignment.trial_id

    def get_trial_resources(self) -> PlacementGroupFactory | None:
        """Return the resources of the trial."""
        return need_session("get_trial_resources()").resources

    def get_trial_dir(self) -> str:
        """Return the trial's folder."""
        return need_session("get_trial_dir()").assignment.folder

    def get_experiment_name(self) -> str:
        """Return the name of the experiment."""
        return need_session("get_experiment_name()").settings.experiment_name


_context = TuneContext()


def get_context() -> TuneContext:
    """Return the context of the trial that runs in this process."""
    return _context
