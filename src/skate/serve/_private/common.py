"""Ids of deployments and replicas. Application-level autoscaling policies receive dictionaries by `DeploymentID`."""

from skate.serve._runtime.ids import DeploymentID, ReplicaID

__all__ = ["DeploymentID", "ReplicaID"]
