"""Drivers run the tasks of a scheduler: in this process, on threads, or on workers."""
