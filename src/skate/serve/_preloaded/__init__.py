"""Modules for `runtime_env={"preload": …}`: imported once by the process that Serve's processes fork from."""
