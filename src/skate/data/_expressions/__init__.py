"""Column expressions: trees of nodes, and what can be done with a tree."""
