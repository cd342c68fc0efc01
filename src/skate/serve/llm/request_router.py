"""Request routers for models."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from skate.serve.llm._prefix_index import PrefixIndex
from skate.serve.request_router import (
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

__all__ = ["KVAwareRouter", "PrefixCacheAffinityRouter"]


class PrefixCacheAffinityRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """Send requests whose prompts share a prefix to the same replica, whose engine has cached the prefix.

    A request goes to the replica that has seen the longest prefix of its prompt. If no replica has seen enough of it,
    the request goes to the replica that has seen the fewest prompts. If the loads of the replicas differ too much, the
    less busy of two random replicas is chosen. A replica that is at capacity is skipped.

    Name the class in `deployment_config`. `request_router_kwargs` are the arguments of `initialize_state`:

        deployment_config={
            "num_replicas": 2,
            "request_router_config": {"request_router_class": PrefixCacheAffinityRouter},
        }
    """

    def initialize_state(
        self,
        imbalanced_threshold: float = math.inf,
        match_rate_threshold: float = 0.1,
        do_eviction: bool = True,
        eviction_threshold_chars: int = 400_000,
        eviction_target_chars: int | None = 360_000,
        eviction_interval_secs: float = 10,
        **_: Any,
    ) -> None:
        """Configure the router.

        Args:
            imbalanced_threshold: If the replicas' numbers of requests differ by more than this, only the load decides.
            match_rate_threshold: The fraction of a prompt that a replica must have seen to be preferred.
            do_eviction: Has no effect, because the router's memory is always limited.
            eviction_threshold_chars: The maximum number of characters of prompts to remember.
            eviction_target_chars: How many of them to keep when there are more.
            eviction_interval_secs: Has no effect, because eviction is immediate.
        """
        self._imbalanced_threshold = imbalanced_threshold
        self._match_rate_threshold = match_rate_threshold
        self._index = PrefixIndex(eviction_threshold_chars, eviction_target_chars)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return the replicas that have seen the longest prefix of the prompt, followed by all others."""
        candidates = candidate_replicas
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
            candidates = [each for each in candidate_replicas if each.replica_id in ids] or candidate_replicas
        text = "" if pending_request is None else prompt_text(pending_request)
        loads = [each.queue_len for each in candidates]
        if not text or not loads or max(loads) - min(loads) > self._imbalanced_threshold:
            return [random.sample(candidates, min(2, len(candidates)))]
        matches = self._index.match(text)
        seen = [(matches.get(each.replica_id, 0), each) for each in candidates]
        most = max(count for count, _ in seen)
        if most and most / len(text) >= self._match_rate_threshold:
            best = [each for count, each in seen if count == most]
        else:
            least = min(self._index.size(each.replica_id) for each in candidates)
            best = [each for each in candidates if self._index.size(each.replica_id) == least]
        others = [each for each in candidates if each not in best]
        return [best, others] if others else [best]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remember that a replica has seen the prompt of a request."""
        self._index.insert(prompt_text(pending_request), replica_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the replicas, and forget those that are gone."""
        super().update_replicas(replicas)
        if hasattr(self, "_index"):
            self._index.keep_only(each.replica_id for each in replicas)


class KVAwareRouter(RequestRouter):
    """Ray's router that tracks the KV caches of engines. It needs events that no engine here publishes."""

    def initialize_state(self, **_: Any) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            "KVAwareRouter needs engines that publish the events of their KV caches: use PrefixCacheAffinityRouter."
        )

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return all replicas. This method is never called, because `initialize_state` raises an error."""
        return [candidate_replicas]


def prompt_text(request: PendingRequest) -> str:
    """Return the text of a request's prompt, or "" if it has none."""
    for argument in request.args:
        for name in ("messages", "prompt", "input"):
            found = getattr(argument, name, None)
            if found is not None:
                return _text(found)
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value))
    if isinstance(value, dict):
        return _text(value.get("content") or value.get("text") or "")
    return str(getattr(value, "text", value))
