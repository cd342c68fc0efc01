"""The one actor that knows what should run, and sees that it does; and how a program talks to it."""

from skate.serve._controller.client import Client, connect, connect_or_start

__all__ = ["Client", "connect", "connect_or_start"]
