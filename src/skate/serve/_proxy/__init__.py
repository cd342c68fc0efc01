"""The edge: HTTP and gRPC from outside, given to replicas."""

from skate.serve._proxy.actor import Proxy

__all__ = ["Proxy"]
