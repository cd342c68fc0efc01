"""Building of applications: from bound deployments to specifications that the controller can deploy."""

from skate.serve._build.builder import build, check_code
from skate.serve._build.spec import ApplicationSpec, DeploymentSpec

__all__ = ["ApplicationSpec", "DeploymentSpec", "build", "check_code"]
