"""Resource limits and options for the execution of a plan."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from skate.data._arguments import NON_NEGATIVE, check_attribute
from skate.util.annotations import RayDeprecationWarning


@dataclass
class ExecutionResources:
    """Amounts of resources; None means no limit.

    Attributes:
        cpu: Number of CPUs.
        gpu: Number of GPUs.
        object_store_memory: Size of the blocks of the plan, in bytes.
        memory: Size of these blocks and of the private memory of workers, in bytes.
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
        """Return a copy with the given amounts replaced."""
        return ExecutionResources(
            self.cpu if cpu is None else cpu,
            self.gpu if gpu is None else gpu,
            self.object_store_memory if object_store_memory is None else object_store_memory,
            self.memory if memory is None else memory,
        )

    @classmethod
    def zero(cls) -> ExecutionResources:
        """Return zero of everything."""
        return cls(0.0, 0.0, 0.0, 0.0)

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Return limits; omitted resources are unlimited."""
        unlimited = float("inf")
        given = (cpu, gpu, object_store_memory, memory)
        return cls(*(unlimited if amount is None else amount for amount in given))


# Options for which Ray warns when they are set, and the remedy.
_DEPRECATED = {
    "exclude_resources": "set resource_limits to what the plan may use",
    "actor_locality_enabled": "do not set it, it has no effect",
}


@dataclass
class ExecutionOptions:
    """Options for the execution of a plan.

    Attributes:
        resource_limits: Maximum resources of a plan; None means no limit.
        exclude_resources: Resources reserved for others; None means none.
        preserve_order: Yield blocks in the order of their source. False allows any order.
        locality_with_output: Accepted; on one machine all data are local.
        verbose_progress: Show the progress of each operator.
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
        if value is not None:  # __post_init__ replaces None with a default
            check_attribute(self, name, value)
        if name in _DEPRECATED:
            if name == "exclude_resources" and value is None:
                value = ExecutionResources.zero()
            if name in vars(self):  # not during construction
                warnings.warn(
                    f"ExecutionOptions.{name} is deprecated in Ray: {_DEPRECATED[name]}",
                    RayDeprecationWarning,
                    stacklevel=2,
                )
        super().__setattr__(name, value)

    def is_resource_limits_default(self) -> bool:
        """Return whether nothing is limited."""
        return self.resource_limits == ExecutionResources.for_limits()
