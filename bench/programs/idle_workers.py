"""Start a worker for each CPU, say so, and stay idle until told to go."""

import importlib
import sys
import time
from typing import Any

ray: Any = importlib.import_module(sys.argv[1])
CPUS = int(sys.argv[2])
ray.init(num_cpus=CPUS, include_dashboard=False)


@ray.remote
def be_busy() -> None:
    time.sleep(0.5)  # long enough for every worker to get a task


ray.get([be_busy.remote() for _ in range(2 * CPUS)])
print("READY", flush=True)
sys.stdin.read()
ray.shutdown()
