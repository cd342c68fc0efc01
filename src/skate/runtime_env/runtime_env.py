"""The classes of runtime environments, under the path Ray has them at."""

from skate._base.runtime_envs import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
