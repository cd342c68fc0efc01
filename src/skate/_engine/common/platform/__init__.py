"""What the local engine needs of the operating system, on Linux and on other POSIX systems."""

from skate._engine.common.platform.choice import system

__all__ = ["system"]
