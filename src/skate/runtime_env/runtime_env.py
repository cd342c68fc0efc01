"""The classes of runtime environments, under Ray's path."""

from skate._base.runtime_envs import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
