"""Column expressions: trees of nodes, and the operations on them."""
