"""Stand-in for `ray.data._internal.execution.interfaces`, from which datasinks import `TaskContext`."""

from skate.data._execution_options import ExecutionOptions, ExecutionResources
from skate.data.datasource.datasink import TaskContext

__all__ = ["ExecutionOptions", "ExecutionResources", "TaskContext"]
