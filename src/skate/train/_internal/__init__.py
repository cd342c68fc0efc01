"""Private names of Ray's that programs use."""
