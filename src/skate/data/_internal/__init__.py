"""Private modules of Ray Data that its own guides import, under the same paths."""
