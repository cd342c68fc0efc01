"""Logical plans: their nodes, optimization, estimates, and the planning of operators."""
