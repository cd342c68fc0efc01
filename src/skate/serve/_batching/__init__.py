"""How calls become batches: what a caller hands in, the batches that form of it, and what comes back."""
