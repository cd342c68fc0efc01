"""Kernels that sort, group, join and partition blocks: pure functions from tables to tables."""
