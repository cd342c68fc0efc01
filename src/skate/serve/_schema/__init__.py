"""Schemas of configuration files, statuses and details of running applications."""
