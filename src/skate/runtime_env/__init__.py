"""Runtime environments of jobs, tasks and actors."""

from skate.runtime_env.runtime_env import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
