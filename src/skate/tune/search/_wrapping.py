"""Searchers that wrap another searcher."""

from __future__ import annotations

import inspect
from typing import Any

from skate.tune.search.searcher import Names, Searcher


def pass_search_properties(
    searcher: Searcher, metric: Names, mode: Names, config: dict[str, Any], spec: dict[str, Any]
) -> bool:
    """Set the properties of a searcher, whose method may not accept those of the experiment."""
    kinds = [each.kind for each in inspect.signature(searcher.set_search_properties).parameters.values()]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        spec = {}
    return searcher.set_search_properties(metric, mode, config, **spec)


class WrappingSearcher(Searcher):
    """Forwards all calls to another searcher, and has its own state.

    Args:
        searcher: The wrapped searcher.

    Raises:
        TypeError: It is not a Searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"{type(self).__name__} needs a Searcher, got {type(searcher).__name__}. "
                "BasicVariantGenerator has its own argument max_concurrent."
            )
        self.searcher = searcher
        super().__init__(searcher.metric, searcher.mode)

    @property
    def metric(self) -> Names:
        """The metric of the wrapped searcher."""
        return self.searcher.metric

    @property
    def mode(self) -> Names:
        """The mode of the wrapped searcher."""
        return self.searcher.mode

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the properties of the wrapped searcher."""
        return pass_search_properties(self.searcher, metric, mode, config, spec)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tell the wrapped searcher a result."""
        self.searcher.on_trial_result(trial_id, result)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Add a configuration that was evaluated elsewhere to the wrapped searcher."""
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, Any]:
        """Return the state without that of the wrapped searcher, which is saved separately."""
        return {name: value for name, value in self.__dict__.items() if name != "searcher"}

    def save(self, checkpoint_path: str) -> None:
        """Write the state of the wrapped searcher to a file."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Read the state of the wrapped searcher from a file."""
        self.searcher.restore(checkpoint_path)
