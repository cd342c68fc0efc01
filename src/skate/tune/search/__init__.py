"""Search algorithms and search spaces."""
