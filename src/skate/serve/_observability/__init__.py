"""Logs, metrics and traces of all Serve processes."""
