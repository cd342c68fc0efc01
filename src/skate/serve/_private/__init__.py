"""Ray's private modules of Serve that its own guides import, under the same paths."""
