"""What a plan may use while it runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from skate.data._arguments import NON_NEGATIVE, check_attribute
from skate.util.annotations import RayDeprecationWarning


@dataclass
class ExecutionResources:
    """Amounts of what a plan uses; None is no limit.

    Attributes:
        cpu: Processors.
        gpu: GPUs.
        object_store_memory: Bytes of the blocks that exist because of the plan.
        memory: Bytes of these blocks and of what worker processes have for themselves, together.
    """

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        check_attribute(self, name, value, NON_NEGATIVE)
        super().__setattr__(name, value)

    def copy(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        memory: float | None = None,
        object_store_memory: float | None = None,
    ) -> ExecutionResources:
        """Return the same amounts, but for those that are given."""
        return ExecutionResources(
            self.cpu if cpu is None else cpu,
            self.gpu if gpu is None else gpu,
            self.object_store_memory if object_store_memory is None else object_store_memory,
            self.memory if memory is None else memory,
        )

    @classmethod
    def zero(cls) -> ExecutionResources:
        """Return nothing of everything."""
        return cls(0.0, 0.0, 0.0, 0.0)

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Return limits: what is not given is without limit."""
        unlimited = float("inf")
        given = (cpu, gpu, object_store_memory, memory)
        return cls(*(unlimited if amount is None else amount for amount in given))


# What Ray warns of when it is set, and what to do instead.
_DEPRECATED = {
    "exclude_resources": "set resource_limits to what the plan may use",
    "actor_locality_enabled": "leave it as it is, it changes nothing",
}


@dataclass
class ExecutionOptions:
    """How a plan is executed.

    Attributes:
        resource_limits: What a plan may use at most; no limit if None is given.
        exclude_resources: What is left to others; nothing if None is given.
        preserve_order: Pass on blocks in the order of their source. Order is kept unless this is set to False.
        locality_with_output: Accepted; on one machine all data are local.
        verbose_progress: Show each step's progress.
    """

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources.for_limits)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources.zero)
    preserve_order: bool = True
    locality_with_output: bool | list[str] = False
    actor_locality_enabled: bool = True
    verbose_progress: bool = False
    label_selector: Any = None

    def __post_init__(self) -> None:
        if self.resource_limits is None:
            self.resource_limits = ExecutionResources.for_limits()  # type: ignore[unreachable]  # callers may pass None
        if self.exclude_resources is None:
            self.exclude_resources = ExecutionResources.zero()  # type: ignore[unreachable]  # callers may pass None

    def __setattr__(self, name: str, value: Any) -> None:
        if value is not None:  # __post_init__ replaces None by a default
            check_attribute(self, name, value)
        if name in _DEPRECATED:
            if name == "exclude_resources" and value is None:
                value = ExecutionResources.zero()
            if name in vars(self):  # and not when the options are made
                warnings.warn(
                    f"ExecutionOptions.{name} is deprecated in Ray: {_DEPRECATED[name]}",
                    RayDeprecationWarning,
                    stacklevel=2,
                )
        super().__setattr__(name, value)

    def is_resource_limits_default(self) -> bool:
        """Tell whether nothing is limited."""
        return self.resource_limits == ExecutionResources.for_limits()
