"""Ids of deployments and replicas, the keys of an application policy's dictionaries."""

from skate.serve._runtime.ids import DeploymentID, ReplicaID

__all__ = ["DeploymentID", "ReplicaID"]
