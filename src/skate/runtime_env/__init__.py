"""Runtime environments: what a job, task or actor needs around its code."""

from skate.runtime_env.runtime_env import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
