"""Learn how hard to throw, in a simulator that only says whether the ball fell short.

Shows tasks that start tasks, an actor that a task makes for itself, and futures handed on without waiting for them:
a whole training run is laid out before its first step has finished.

Prints:

    player 0: 3 -> 12, a hit
    player 1: 17 -> 12, a hit
    player 2: 12 -> 12, a hit
    player 3: 30 -> 18, too far
"""

# needs: core

import ray

DISTANCE = 12
FIRST_THROWS = [3, 17, 12, 30]


@ray.remote
def first_policy(player):
    return FIRST_THROWS[player]


@ray.remote
def improve(policy, outcome):
    """Throw harder after a short throw, and softer after a long one."""
    if outcome == "short":
        return policy + 1
    if outcome == "far":
        return policy - 1
    return policy


@ray.remote
class Range:
    """A place to throw at a target."""

    def __init__(self):
        self.distance = DISTANCE

    def throw(self, policy):
        if policy < self.distance:
            return "short"
        return "far" if policy > self.distance else "hit"


@ray.remote
def train(player, steps):
    """Return the policy that a player has after some steps, and how well it does."""
    policy = first_policy.remote(player)
    simulator = Range.remote()
    for _ in range(steps):
        outcome = simulator.throw.remote(policy)
        policy = improve.remote(policy, outcome)
    return ray.get([policy, simulator.throw.remote(policy)])


VERDICT = {"short": "too short", "far": "too far", "hit": "a hit"}
trained = ray.get([train.remote(player, steps=12) for player in range(len(FIRST_THROWS))])
for player, (policy, outcome) in enumerate(trained):
    print(f"player {player}: {FIRST_THROWS[player]} -> {policy}, {VERDICT[outcome]}")
