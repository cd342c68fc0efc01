"""Search how to contract a tensor network with cotengra, trials in Ray tasks, and contract its slices there too."""

import os

import cotengra
import numpy as np
import ray
from reporting import report

ray.init(num_cpus=2)
inputs, output, shapes, sizes = cotengra.utils.rand_equation(10, 3, n_out=2, seed=4, d_max=3)
rng = np.random.default_rng(4)
arrays = [rng.normal(size=shape) for shape in shapes]

search = cotengra.HyperOptimizer(
    methods=["greedy"], max_repeats=16, parallel="ray", optlib="random", slicing_opts={"target_slices": 4}
)
tree = search.search(inputs, output, sizes)
assert len(search.scores) == 16

pool = cotengra.parallel.get_pool(backend="ray")
slices = [pool.submit(tree.contract_slice, arrays, number) for number in range(tree.nslices)]
result = tree.gather_slices([each.result() for each in slices])
expected = np.einsum(cotengra.utils.inputs_output_to_eq(inputs, output), *arrays, optimize=True)
report(
    result=result.round(9).tolist(),
    expected=expected.round(9).tolist(),
    pids=[pool.submit(os.getpid).result()],
)
