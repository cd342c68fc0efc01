"""The common parts of the engines on this machine: resources, calls, errors, runtime environments, tables."""
