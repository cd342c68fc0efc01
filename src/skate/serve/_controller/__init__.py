"""The controller actor, which reconciles applications with their specifications, and its client."""

from skate.serve._controller.client import Client, connect, connect_or_start

__all__ = ["Client", "connect", "connect_or_start"]
