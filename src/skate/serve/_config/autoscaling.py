"""When a deployment gets more or fewer replicas, as its author says it."""

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
    """The function that decides how many replicas a deployment, or each one of an application, should have.

    It takes an `AutoscalingContext` (for an application: a dictionary of them by deployment) and returns the number
    of replicas and its state, which it finds in the context the next time. A class is made once, with
    `policy_kwargs`, and then called.
    """

    policy_function: str | Callable[..., Any] = Field(
        default=defaults.AUTOSCALING_POLICY,
        description="An import path (`module:name`), a function, or a class whose instances are called.",
    )
    policy_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Arguments for the class of the policy; must be JSON-serializable."
    )
    _packed: bytes | None = PrivateAttr(default=None)

    @field_validator("policy_kwargs")
    @classmethod
    def _kwargs_are_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        validation.check_json("policy_kwargs", value)
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Keep a function by its code, and see that a path leads somewhere."""
        super().model_post_init(context)
        given = self.policy_function
        if isinstance(given, str):
            if given not in _DEFAULT_POLICIES:
                import_paths.load(given)
        else:
            self.policy_function = import_paths.path_of(given)
            self._packed = import_paths.pack(given)

    def is_default_policy_function(self) -> bool:
        """Return whether nothing else was asked for than Serve's own policy."""
        return self._packed is None and self.policy_function in _DEFAULT_POLICIES

    def get_policy(self) -> Callable[..., Any]:
        """Return the function or class that decides."""
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
    ...     print(error.errors()[0]["msg"].partition("!")[0])
    max_replicas (3) must be greater than or equal to min_replicas (4)
    """

    min_replicas: NonNegativeInt = Field(
        default=1, description="Fewest replicas; 0 lets an idle deployment go."
    )
    initial_replicas: NonNegativeInt | None = Field(
        default=None, description="Replicas to start with; `min_replicas` if not given."
    )
    max_replicas: PositiveInt = Field(default=1, description="Most replicas.")
    target_ongoing_requests: PositiveFloat | None = Field(
        default=defaults.TARGET_ONGOING_REQUESTS,
        description="Requests, running and waiting, that there should be for each replica on average.",
    )
    metrics_interval_s: PositiveFloat = Field(
        default=defaults.METRICS_INTERVAL_S, description="How often replicas and handles report, in seconds."
    )
    look_back_period_s: PositiveFloat = Field(
        default=defaults.LOOK_BACK_PERIOD_S, description="How far back measurements count, in seconds."
    )
    smoothing_factor: PositiveFloat = Field(
        default=1.0, description="An older word for the two factors below."
    )
    upscale_smoothing_factor: PositiveFloat | None = Field(
        default=None, description="An older word for `upscaling_factor`."
    )
    downscale_smoothing_factor: PositiveFloat | None = Field(
        default=None, description="An older word for `downscaling_factor`."
    )
    upscaling_factor: PositiveFloat | None = Field(
        default=None,
        description="Which part of missing replicas to add at a time; above 1 adds more than that.",
    )
    downscaling_factor: PositiveFloat | None = Field(
        default=None, description="Which part of surplus replicas to remove at a time."
    )
    downscale_delay_s: NonNegativeFloat = Field(
        default=defaults.DOWNSCALE_DELAY_S,
        description="How long there must be too many replicas, in seconds.",
    )
    downscale_to_zero_delay_s: NonNegativeFloat | None = Field(
        default=None, description="The same for the last replica; `downscale_delay_s` if not given."
    )
    upscale_delay_s: NonNegativeFloat = Field(
        default=defaults.UPSCALE_DELAY_S, description="How long there must be too few replicas, in seconds."
    )
    aggregation_function: AggregationFunction = Field(
        default=AggregationFunction.MEAN, description="How measurements of the look-back period become one."
    )
    policy: AutoscalingPolicy = Field(
        default_factory=AutoscalingPolicy,
        description="Who decides; the number of ongoing requests if not given.",
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
                f"max_replicas ({high}) must be greater than or equal to min_replicas ({low})! Raise max_replicas "
                "or lower min_replicas."
            )
        if first is not None and first < low:
            raise ValueError(
                f"min_replicas ({low}) must be less than or equal to initial_replicas ({first})! Raise "
                "initial_replicas, or leave it out to start with min_replicas."
            )
        if first is not None and first > high:
            raise ValueError(
                f"max_replicas ({high}) must be greater than or equal to initial_replicas ({first})! Raise "
                "max_replicas or lower initial_replicas."
            )
        if self.target_ongoing_requests is None and self.policy.is_default_policy_function():
            raise ValueError(
                "target_ongoing_requests is None, but the default policy decides by it: give a number, or a policy "
                "of your own with `policy`."
            )
        if self.look_back_period_s <= self.metrics_interval_s and self._is_set_by_user():
            warnings.warn(
                f"`look_back_period_s` ({self.look_back_period_s}) must be greater than `metrics_interval_s` "
                f"({self.metrics_interval_s}), or there may be no measurement within it. Set "
                "`look_back_period_s` > `metrics_interval_s`.",
                FutureWarning,
                stacklevel=3,
            )
        return self

    def _is_set_by_user(self) -> bool:
        return bool({"look_back_period_s", "metrics_interval_s"} & self.model_fields_set)

    @classmethod
    def default(cls) -> AutoscalingConfig:
        """Return what `num_replicas="auto"` stands for."""
        return cls(**auto_fields())

    def get_upscaling_factor(self) -> float:
        """Return the part of missing replicas to add at a time."""
        return self.upscaling_factor or self.upscale_smoothing_factor or self.smoothing_factor

    def get_downscaling_factor(self) -> float:
        """Return the part of surplus replicas to remove at a time."""
        return self.downscaling_factor or self.downscale_smoothing_factor or self.smoothing_factor

    def get_target_ongoing_requests(self) -> float | None:
        """Return how many requests there should be for each replica."""
        return self.target_ongoing_requests


def auto_fields(gang_size: int = 1) -> dict[str, Any]:
    """Return the fields that `num_replicas="auto"` sets, under those that a user gives."""
    return {
        "min_replicas": gang_size,
        "max_replicas": max(defaults.AUTO_MAX_REPLICAS // gang_size, 1) * gang_size,
        "target_ongoing_requests": defaults.TARGET_ONGOING_REQUESTS,
    }


def policy_of(fields: Mapping[str, Any]) -> AutoscalingPolicy:
    """Return the policy that an application's configuration describes, with its code where it has any."""
    policy = fields.get("policy_function", defaults.AUTOSCALING_POLICY)
    if (packed := fields.get("_packed")) is not None:
        policy = import_paths.unpack(packed)
    return AutoscalingPolicy(policy_function=policy, policy_kwargs=dict(fields.get("policy_kwargs") or {}))


def fields_of(policy: AutoscalingPolicy) -> dict[str, Any]:
    """Return what `policy_of` makes the same policy from."""
    fields = policy.model_dump()
    return fields if policy._packed is None else {**fields, "_packed": policy._packed}
