"""What processes of Serve need, for `runtime_env={"preload": …}`: imported once, and forked from there."""
