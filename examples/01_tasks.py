"""Estimate π by throwing darts in parallel, and stop as soon as the estimate is good enough.

Shows tasks, taking results in the order in which they finish, cancelling the rest, and a stream of values.
"""

import random

import skate

DARTS = 50_000


@skate.remote
def throw(darts: int, seed: int) -> int:
    """Return how many of the darts hit the quarter circle."""
    rng = random.Random(seed)
    return sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(darts))


@skate.remote
def primes(below: int):
    """Yield the primes below a number, each as soon as it is found."""
    found: list[int] = []
    for n in range(2, below):
        if all(n % p for p in found):
            found.append(n)
            yield n


def main() -> None:
    pending = [throw.remote(DARTS, seed) for seed in range(40)]
    hits = thrown = 0
    while pending:
        (done,), pending = skate.wait(pending, num_returns=1)
        hits += skate.get(done)
        thrown += DARTS
        estimate = 4 * hits / thrown
        error = 2 * (estimate * (4 - estimate) / thrown) ** 0.5
        if thrown >= 5 * DARTS and error < 0.005:
            break
    for ref in pending:
        skate.cancel(ref)
    print(f"π is {estimate:.3f} ± {error:.3f} after {thrown:,} darts; {len(pending)} tasks were not needed")

    print("primes:", *(skate.get(ref) for ref in primes.remote(50)))


if __name__ == "__main__":
    main()
