"""Modules that Serve processes need, for `runtime_env={"preload": …}`: imported once, and inherited by fork."""
