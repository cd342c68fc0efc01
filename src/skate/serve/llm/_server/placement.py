"""The options of a model's deployment: its limits, and the resources of its replicas."""

from __future__ import annotations

from typing import Any

import skate
from skate.serve.llm._config import LLMConfig

__all__ = ["deployment_name", "deployment_options"]

DEFAULT_OPTIONS: dict[str, Any] = {
    "max_ongoing_requests": 256,
    "max_queued_requests": 1024,
    "health_check_period_s": 2,
    "health_check_timeout_s": 10,
}
_TARGET_ONGOING_REQUESTS = 64


def _may_use_gpus(llm_config: LLMConfig) -> bool:
    """Return whether the engine uses a GPU if there is one."""
    arguments = llm_config.engine_kwargs
    return arguments.get("device") != "cpu" and arguments.get("quantization") != "int4"


def deployment_name(llm_config: LLMConfig) -> str:
    """Return the name of a model's deployment, without the prefix."""
    given = llm_config.deployment_config.get("name")
    return str(given or llm_config.model_id.replace("/", "--").replace(".", "_"))


def deployment_options(llm_config: LLMConfig) -> dict[str, Any]:
    """Return the options of a model's deployment; see `LLMServer.get_deployment_options`."""
    options = {**DEFAULT_OPTIONS, **llm_config.deployment_config}
    autoscaling = options.get("autoscaling_config")
    if isinstance(autoscaling, dict):
        options["autoscaling_config"] = {
            "target_ongoing_requests": _TARGET_ONGOING_REQUESTS,
            **autoscaling,
        }
    actor = dict(options.get("ray_actor_options") or {})
    environments = (actor.get("runtime_env"), llm_config.runtime_env)
    if any(environments):
        actor["runtime_env"] = {name: value for each in environments for name, value in (each or {}).items()}
    placement = llm_config.placement_group_config
    if llm_config.accelerator_kind == "tpu":
        raise ValueError(
            f"The model {llm_config.model_id!r} requests TPUs, which no engine supports: use GPUs or CPUs."
        )
    if placement is not None:
        bundles = placement.get("bundles") or [placement["bundle_per_worker"]] * llm_config.num_workers
        # The replica runs in the first bundle, and its engine in the same process.
        actor.setdefault("num_cpus", bundles[0].get("CPU", 0))
        actor.setdefault("num_gpus", bundles[0].get("GPU", 0))
        if len(bundles) > 1:
            options["placement_group_bundles"] = bundles
            options["placement_group_strategy"] = placement.get("strategy", "PACK")
    elif llm_config.accelerator_kind == "gpu" or (
        llm_config.accelerator_kind is None
        and _may_use_gpus(llm_config)
        and skate.cluster_resources().get("GPU", 0)
    ):
        actor.setdefault("num_gpus", llm_config.num_workers)
    if llm_config.accelerator_type is not None:
        actor.setdefault("accelerator_type", llm_config.accelerator_type)
    if actor:
        options["ray_actor_options"] = actor
    return options
