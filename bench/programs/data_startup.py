"""Import datasets, start, run a first job on two actors, say so, and wait until told to go."""

import importlib
import sys
from typing import Any

ray: Any = importlib.import_module(sys.argv[1])
data: Any = importlib.import_module(f"{sys.argv[1]}.data")
data.DataContext.get_current().enable_progress_bars = False
ray.init(num_cpus=int(sys.argv[2]), include_dashboard=False)


class Doubled:
    """Runs in actors, so that no system does the job in the program's own process."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"double": 2 * batch["id"]}


rows = data.range(1000, override_num_blocks=8).map_batches(Doubled, concurrency=2).count()
if rows != 1000:
    sys.exit(f"the first job gave {rows} rows instead of 1000")
print("READY", flush=True)
sys.stdin.read()
ray.shutdown()
