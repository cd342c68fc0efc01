"""Private modules of Ray Serve that its documentation imports, under the same paths."""
