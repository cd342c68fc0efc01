"""The autoscaling configuration of a deployment."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from skate.serve._config import defaults, import_paths, validation
from skate.serve._config.defaults import AggregationFunction
from skate.serve._config.model import ServeModel

_DEFAULT_POLICIES = (
    defaults.AUTOSCALING_POLICY,
    defaults.AUTOSCALING_POLICY.replace("skate.", "ray.", 1),
)


class AutoscalingPolicy(ServeModel):
    """The function that decides how many replicas a deployment, or each deployment of an application, should have.

    It takes an `AutoscalingContext` (for an application: a dictionary of them by deployment id) and returns the
    number of replicas and its state, which the next context contains. A class is instantiated once, with
    `policy_kwargs`, and its instance is called.
    """

    policy_function: str | Callable[..., Any] = Field(
        default=defaults.AUTOSCALING_POLICY,
        description="An import path (`module:name`), a function, or a class whose instances are called.",
    )
    policy_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the policy's class; must be JSON-serializable."
    )
    _packed: bytes | None = PrivateAttr(default=None)

    @field_validator("policy_kwargs")
    @classmethod
    def _kwargs_are_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        validation.check_json("policy_kwargs", value)
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Pickle a function or class, and check that an import path can be imported."""
        super().model_post_init(context)
        given = self.policy_function
        if isinstance(given, str):
            if given not in _DEFAULT_POLICIES:
                import_paths.load(given)
        else:
            self.policy_function = import_paths.path_of(given)
            self._packed = import_paths.pack(given)

    def is_default_policy_function(self) -> bool:
        """Return whether the policy is Serve's default."""
        return self._packed is None and self.policy_function in _DEFAULT_POLICIES

    def get_policy(self) -> Callable[..., Any]:
        """Return the policy's function or class."""
        if self._packed is not None:
            policy = import_paths.unpack(self._packed)
        else:
            policy = import_paths.load(str(self.policy_function))
        if not callable(policy):
            raise TypeError(
                f"policy_function {self.policy_function!r} is {policy!r}: it must be a function or a class."
            )
        return policy  # type: ignore[no-any-return]  # callable() does not narrow Any


class AutoscalingConfig(ServeModel):
    """How the number of a deployment's replicas follows its load.

    >>> from skate.serve.config import AutoscalingConfig
    >>> AutoscalingConfig(min_replicas=2, max_replicas=10).get_target_ongoing_requests()
    2.0
    >>> try:
    ...     AutoscalingConfig(min_replicas=4, max_replicas=3)
    ... except ValueError as error:
    ...     print(error.errors()[0]["msg"].partition(":")[0])
    max_replicas (3) is less than min_replicas (4)
    """

    min_replicas: NonNegativeInt = Field(
        default=1, description="Fewest replicas; 0 stops all replicas of an idle deployment."
    )
    initial_replicas: NonNegativeInt | None = Field(
        default=None, description="Replicas to start with; `min_replicas` if not given."
    )
    max_replicas: PositiveInt = Field(default=1, description="Most replicas.")
    target_ongoing_requests: PositiveFloat | None = Field(
        default=defaults.TARGET_ONGOING_REQUESTS,
        description="Average number of running and waiting requests per replica to aim for.",
    )
    metrics_interval_s: PositiveFloat = Field(
        default=defaults.METRICS_INTERVAL_S, description="How often replicas and handles report, in seconds."
    )
    look_back_period_s: PositiveFloat = Field(
        default=defaults.LOOK_BACK_PERIOD_S,
        description="Length of the period over which measurements are aggregated, in seconds.",
    )
    smoothing_factor: PositiveFloat = Field(
        default=1.0, description="Deprecated: sets `upscaling_factor` and `downscaling_factor`."
    )
    upscale_smoothing_factor: PositiveFloat | None = Field(
        default=None, description="Deprecated name of `upscaling_factor`."
    )
    downscale_smoothing_factor: PositiveFloat | None = Field(
        default=None, description="Deprecated name of `downscaling_factor`."
    )
    upscaling_factor: PositiveFloat | None = Field(
        default=None,
        description="The fraction of missing replicas to add at a time; values above 1 add more.",
    )
    downscaling_factor: PositiveFloat | None = Field(
        default=None, description="The fraction of surplus replicas to remove at a time."
    )
    downscale_delay_s: NonNegativeFloat = Field(
        default=defaults.DOWNSCALE_DELAY_S,
        description="How long fewer replicas must be desired before a scale-down, in seconds.",
    )
    downscale_to_zero_delay_s: NonNegativeFloat | None = Field(
        default=None, description="The same for the last replica; `downscale_delay_s` if not given."
    )
    upscale_delay_s: NonNegativeFloat = Field(
        default=defaults.UPSCALE_DELAY_S,
        description="How long more replicas must be desired before a scale-up, in seconds.",
    )
    aggregation_function: AggregationFunction = Field(
        default=AggregationFunction.MEAN,
        description="How to aggregate the measurements of the look-back period.",
    )
    policy: AutoscalingPolicy = Field(
        default_factory=AutoscalingPolicy,
        description="The policy that decides; by default, the number of ongoing requests does.",
    )

    removed: ClassVar[dict[str, str]] = {
        "target_num_ongoing_requests_per_replica": "Use `target_ongoing_requests`.",
        "_policy": "Use `policy`.",
    }

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> AutoscalingConfig:
        low, high, first = self.min_replicas, self.max_replicas, self.initial_replicas
        if low > high:
            raise ValueError(
                f"max_replicas ({high}) is less than min_replicas ({low}): raise max_replicas or lower min_replicas."
            )
        if first is not None and first < low:
            raise ValueError(
                f"initial_replicas ({first}) is less than min_replicas ({low}): raise initial_replicas, or leave it "
                "out to start with min_replicas."
            )
        if first is not None and first > high:
            raise ValueError(
                f"initial_replicas ({first}) is more than max_replicas ({high}): raise max_replicas or lower "
                "initial_replicas."
            )
        if self.target_ongoing_requests is None and self.policy.is_default_policy_function():
            raise ValueError(
                "target_ongoing_requests is None, but the default policy requires it: set a number, or your own "
                "policy with `policy`."
            )
        if self.look_back_period_s <= self.metrics_interval_s and self._is_set_by_user():
            warnings.warn(
                f"There may be no measurement within `look_back_period_s`, {self.look_back_period_s} s, as there is "
                f"one every {self.metrics_interval_s} s: raise it above `metrics_interval_s`.",
                FutureWarning,
                stacklevel=3,
            )
        return self

    def _is_set_by_user(self) -> bool:
        return bool({"look_back_period_s", "metrics_interval_s"} & self.model_fields_set)

    @classmethod
    def default(cls) -> AutoscalingConfig:
        """Return the configuration that `num_replicas="auto"` means."""
        return cls(**auto_fields())

    def get_upscaling_factor(self) -> float:
        """Return the fraction of missing replicas to add at a time."""
        return self.upscaling_factor or self.upscale_smoothing_factor or self.smoothing_factor

    def get_downscaling_factor(self) -> float:
        """Return the fraction of surplus replicas to remove at a time."""
        return self.downscaling_factor or self.downscale_smoothing_factor or self.smoothing_factor

    def get_target_ongoing_requests(self) -> float | None:
        """Return the number of requests per replica to aim for."""
        return self.target_ongoing_requests


def auto_fields(gang_size: int = 1) -> dict[str, Any]:
    """Return the fields that `num_replicas="auto"` sets; fields from the user override them."""
    return {
        "min_replicas": gang_size,
        "max_replicas": max(defaults.AUTO_MAX_REPLICAS // gang_size, 1) * gang_size,
        "target_ongoing_requests": defaults.TARGET_ONGOING_REQUESTS,
    }


def policy_from_fields(fields: Mapping[str, Any]) -> AutoscalingPolicy:
    """Return the policy that `policy_to_fields` returned the fields of."""
    policy = fields.get("policy_function", defaults.AUTOSCALING_POLICY)
    if (packed := fields.get("_packed")) is not None:
        policy = import_paths.unpack(packed)
    return AutoscalingPolicy(policy_function=policy, policy_kwargs=dict(fields.get("policy_kwargs") or {}))


def policy_to_fields(policy: AutoscalingPolicy) -> dict[str, Any]:
    """Return the fields of a policy, including the pickle of its code if there is one."""
    fields = policy.model_dump()
    return fields if policy._packed is None else {**fields, "_packed": policy._packed}
