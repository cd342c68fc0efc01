"""Runtime environments as data: their fields, validation, and inheritance."""

from skate._base.runtime_envs.config import RuntimeEnvConfig
from skate._base.runtime_envs.inheritance import as_runtime_env, for_task, merge
from skate._base.runtime_envs.runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv", "RuntimeEnvConfig", "as_runtime_env", "for_task", "merge"]
