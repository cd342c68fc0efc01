"""Metrics of the requests to a model."""

from __future__ import annotations

from skate.serve import metrics
from skate.serve.llm._server.generation import Account

__all__ = ["ServerMetrics"]

_SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0]


class ServerMetrics:
    """Count requests, their tokens and their time.

    Args:
        model: The name of the model.
        is_enabled: Whether to record metrics.
    """

    def __init__(self, model: str, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        if not is_enabled:
            return
        tags = {"model": model}
        self._requests = metrics.Counter(
            "llm_requests", "Completed requests.", tag_keys=("model", "method", "status")
        ).set_default_tags(tags)
        self._prompt_tokens = metrics.Counter(
            "llm_prompt_tokens", "Prompt tokens.", tag_keys=("model",)
        ).set_default_tags(tags)
        self._cached_tokens = metrics.Counter(
            "llm_cached_prompt_tokens",
            "Prompt tokens found in the prefix cache.",
            tag_keys=("model",),
        ).set_default_tags(tags)
        self._generated_tokens = metrics.Counter(
            "llm_generated_tokens", "Generated tokens.", tag_keys=("model",)
        ).set_default_tags(tags)
        self._first_token = metrics.Histogram(
            "llm_time_to_first_token_s", "Seconds to the first token.", _SECONDS, tag_keys=("model",)
        ).set_default_tags(tags)
        self._between = metrics.Histogram(
            "llm_inter_token_latency_s",
            "Seconds between two tokens: the mean of each request.",
            _SECONDS,
            tag_keys=("model",),
        ).set_default_tags(tags)
        self._parts = metrics.Histogram(
            "llm_request_part_s",
            "Seconds spent in each part of a request.",
            _SECONDS,
            tag_keys=("model", "part"),
        ).set_default_tags(tags)

    def record(self, method: str, status: int, account: Account | None) -> None:
        """Record a request that ended.

        Args:
            method: The method of the server.
            status: The HTTP status.
            account: The tokens and the time of the request, if it ran.
        """
        if not self._is_enabled:
            return
        self._requests.inc(1, {"method": method, "status": str(status)})
        if account is None or status != 200:
            return
        for counter, count in (
            (self._prompt_tokens, account.prompt_tokens),
            (self._cached_tokens, account.cached_tokens),
            (self._generated_tokens, account.completion_tokens),
        ):
            if count:
                counter.inc(count)
        if account.first_token_s is not None:
            self._first_token.observe(max(account.first_token_s, 0.0))
        timing = account.timing
        if account.completion_tokens > 1 and timing.decode:
            self._between.observe(timing.decode / (account.completion_tokens - 1))
        for part, seconds in timing.model_dump(exclude_none=True).items():
            self._parts.observe(seconds, {"part": part})
