"""Private modules of Ray Serve that Ray's guides import, under the same paths."""
