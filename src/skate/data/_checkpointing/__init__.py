"""Checkpointed writes: they record the ids of written rows, and skip the rows of earlier runs."""
