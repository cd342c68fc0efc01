"""Look for stars in a large picture that every task reads in place.

Shows an array that is stored once and mapped by all who read it, results that go from task to task without a copy in
the driver, and references inside other values, which stay references.

Prints:

    32 MB, read in place by 4 tasks: 4 of 4 could not write
    stars at rows 137, 888, 1204, 1999
    halves add up to the whole: True
    in a list it stays an ObjectRef, and opens to 2000 rows
"""

# needs: core

import numpy as np
import ray

SIDE, STARS = 2000, (137, 888, 1204, 1999)


@ray.remote
def find_star(picture, rows):
    """Return the row of the brightest point in a part of the picture, and whether the picture could be changed."""
    row = rows.start + int(picture[rows].max(axis=1).argmax())
    try:
        picture[0, 0] = 0
    except ValueError:
        return row, False
    return row, True


@ray.remote(num_returns=2)
def split(picture):
    return picture[: SIDE // 2], picture[SIDE // 2 :]


@ray.remote
def brightness(*pictures):
    return sum(float(picture.sum()) for picture in pictures)


@ray.remote
def open_list(references):
    (reference,) = references
    return f"in a list it stays an {type(reference).__name__}, and opens to {len(ray.get(reference))} rows"


sky = np.random.default_rng(seed=1).integers(0, 100, size=(SIDE, SIDE)).astype(np.float64)
for row in STARS:
    sky[row, row] = 1000

picture = ray.put(sky)
parts = [slice(start, start + SIDE // 4) for start in range(0, SIDE, SIDE // 4)]
found = ray.get([find_star.remote(picture, rows) for rows in parts])
kept = sum(not changed for _, changed in found)
print(
    f"{sky.nbytes // 10**6} MB, read in place by {len(parts)} tasks: {kept} of {len(parts)} could not write"
)
print("stars at rows", ", ".join(str(row) for row, _ in found))

halves = split.remote(picture)
print(
    "halves add up to the whole:", ray.get(brightness.remote(*halves)) == ray.get(brightness.remote(picture))
)
print(ray.get(open_list.remote([picture])))
