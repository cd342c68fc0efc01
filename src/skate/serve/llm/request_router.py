"""Request routers for models."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

from skate.llm import GenerationRequest
from skate.serve.llm._prefix_index import KnownCache, PrefixIndex, PromptTokens
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
        candidates = self._with_adapter(candidate_replicas, pending_request)
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

    def _with_adapter(
        self, replicas: list[RunningReplica], request: PendingRequest | None
    ) -> list[RunningReplica]:
        """Return the replicas that have loaded the adapter of a request, or all of them if there is none."""
        if request is None or not request.metadata.multiplexed_model_id:
            return replicas
        ids = self.apply_multiplex_routing(request)
        return [each for each in replicas if each.replica_id in ids] or replicas

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remember that a replica has seen the prompt of a request."""
        self._index.insert(prompt_text(pending_request), replica_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the replicas, and forget those that are gone."""
        super().update_replicas(replicas)
        if hasattr(self, "_index"):
            self._index.keep_only(each.replica_id for each in replicas)


class KVAwareRouter(PrefixCacheAffinityRouter):
    """Send a prompt to the replica that will have computed it first.

    The router needs the tokens of the prompt, so use it in `prefill_config` of `build_pd_openai_app`. It counts the
    blocks that a replica has left to compute: those of the prompt that are not in its prefix cache, and those of the
    requests that it has not answered yet. Every `request_routing_stats_period_s` seconds, replicas report their caches.
    Prompts that were sent since then count as cached. Requests whose tokens are not known are routed as by
    `PrefixCacheAffinityRouter`.

        deployment_config={
            "num_replicas": 2,
            "request_router_config": {"request_router_class": KVAwareRouter, "request_routing_stats_period_s": 1},
        }
    """

    def initialize_state(self, *args: Any, **kwargs: Any) -> None:
        """Configure the router.

        Args:
            *args: The arguments of `PrefixCacheAffinityRouter`, for requests whose tokens are not known.
            **kwargs: Its keyword arguments.
        """
        super().initialize_state(*args, **kwargs)
        self._caches: dict[ReplicaID, KnownCache] = {}
        # The replica of a request, and the blocks that it has to compute.
        self._ongoing: dict[str, tuple[ReplicaID, int]] = {}
        self._mean_blocks = 1.0

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return the replicas in the order of the blocks that they have left to compute with the prompt."""
        prompt = None if pending_request is None else _prompt_of(pending_request)
        if prompt is None:
            return await super().choose_replicas(candidate_replicas, pending_request)
        candidates = self._with_adapter(candidate_replicas, pending_request)
        costs = {
            each.replica_id: self._work(each) + self._cache_of(each).missing(prompt) for each in candidates
        }
        ordered = sorted(candidates, key=lambda each: costs[each.replica_id])
        ranks = [
            list(rank) for _, rank in itertools.groupby(ordered, key=lambda each: costs[each.replica_id])
        ]
        others = [each for each in candidate_replicas if each not in candidates]
        return [*ranks, others] if others else ranks

    def _work(self, replica: RunningReplica) -> float:
        """Return the blocks that a replica has left to compute. The requests of other callers count as average ones."""
        own = [blocks for id, blocks in self._ongoing.values() if id == replica.replica_id]
        return sum(own) + max(0, replica.queue_len - len(own)) * self._mean_blocks

    def _cache_of(self, replica: RunningReplica) -> KnownCache:
        known = self._caches.get(replica.replica_id)
        if known is None or known.stats is not replica.routing_stats:
            known = self._caches[replica.replica_id] = KnownCache(replica.routing_stats)
        return known

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remember that a replica computes the prompt of a request."""
        prompt = _prompt_of(pending_request)
        replica = self.curr_replicas.get(replica_id)
        if prompt is None or replica is None:
            super().on_request_routed(pending_request, replica_id, result)
            return
        cache = self._cache_of(replica)
        missing = cache.missing(prompt)
        cache.add(prompt)
        self._ongoing[pending_request.metadata.internal_request_id] = replica_id, missing
        self._mean_blocks += 0.1 * (missing - self._mean_blocks)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Forget the work of a request that has ended."""
        self._ongoing.pop(internal_request_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the replicas, and forget those that are gone."""
        super().update_replicas(replicas)
        if hasattr(self, "_caches"):
            self._caches = {id: each for id, each in self._caches.items() if id in self.curr_replicas}
            self._ongoing = {id: each for id, each in self._ongoing.items() if each[0] in self.curr_replicas}


def _prompt_of(request: PendingRequest) -> PromptTokens | None:
    """Return the tokens of a request to an engine, or None if it is another one."""
    for argument in request.args:
        if isinstance(argument, GenerationRequest):
            return PromptTokens(argument.prompt, argument.cache_salt, request.metadata.multiplexed_model_id)
    return None


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
