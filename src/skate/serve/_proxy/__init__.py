"""The proxy, which accepts HTTP and gRPC requests from clients and forwards them to replicas."""

from skate.serve._proxy.actor import Proxy

__all__ = ["Proxy"]
