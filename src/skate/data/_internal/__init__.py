"""Private modules of Ray Data that its own guides and packages import, under the same paths."""
