"""Import, start, run one task, say so, and stay idle until told to go.

Imports nothing else: what this file loads would be counted as the system's.
"""

import sys

if sys.argv[1] == "skate":
    import skate as ray
else:
    import ray

ray.init(num_cpus=int(sys.argv[2]), include_dashboard=False)


@ray.remote
def add_one(x: int) -> int:
    return x + 1


if ray.get(add_one.remote(1)) != 2:
    sys.exit("the first task gave a wrong answer")
print("READY", flush=True)
sys.stdin.read()
ray.shutdown()
