"""Ids of deployments and replicas: policies of applications are given dictionaries by `DeploymentID`."""

from skate.serve._runtime.ids import DeploymentID, ReplicaID

__all__ = ["DeploymentID", "ReplicaID"]
