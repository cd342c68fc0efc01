"""The functions of the core API; `skate` re-exports them."""
