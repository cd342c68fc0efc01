"""From an application as users compose it to what can be deployed."""

from skate.serve._build.builder import build, check_code
from skate.serve._build.spec import ApplicationSpec, DeploymentSpec

__all__ = ["ApplicationSpec", "DeploymentSpec", "build", "check_code"]
