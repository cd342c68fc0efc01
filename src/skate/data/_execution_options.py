"""Options of the execution of plans."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from skate.data._arguments import NON_NEGATIVE, check_attribute
from skate.util.annotations import RayDeprecationWarning


@dataclass
class ExecutionResources:
    """Amounts of resources of a plan; None is no limit.

    Attributes:
        cpu: CPUs.
        gpu: GPUs.
        object_store_memory: Bytes of the blocks that the plan creates.
        memory: Bytes of these blocks and of the private memory of workers together.
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
        """Return resources with all amounts 0."""
        return cls(0.0, 0.0, 0.0, 0.0)

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Return limits; amounts that are not given are unlimited."""
        unlimited = float("inf")
        given = (cpu, gpu, object_store_memory, memory)
        return cls(*(unlimited if amount is None else amount for amount in given))


# Deprecated options, with the advice of the warning.
_DEPRECATED = {
    "exclude_resources": "set resource_limits to what the plan may use",
    "actor_locality_enabled": "leave it out, it has no effect",
}


@dataclass
class ExecutionOptions:
    """Options of the execution of a plan.

    Attributes:
        resource_limits: Maximum resources of a plan; None is unlimited.
        exclude_resources: Resources reserved for other work; None reserves nothing.
        preserve_order: Keep the order of blocks. True by default.
        locality_with_output: Accepted without effect: on one machine all data are local.
        verbose_progress: Show the progress of each step.
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
            if name in vars(self):  # do not warn in the constructor
                warnings.warn(
                    f"ExecutionOptions.{name} is deprecated in Ray: {_DEPRECATED[name]}",
                    RayDeprecationWarning,
                    stacklevel=2,
                )
        super().__setattr__(name, value)

    def is_resource_limits_default(self) -> bool:
        """Return whether no resource is limited."""
        return self.resource_limits == ExecutionResources.for_limits()
