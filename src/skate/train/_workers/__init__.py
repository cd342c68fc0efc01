"""The workers of a run: the actor and the session of each, the group that they make, and its supervision."""
