"""Iteration over datasets: batches, framework adapters, sharding between readers, and reader positions."""
