"""The workers of a run: the actor and the session of each, the worker group, and its supervision."""
