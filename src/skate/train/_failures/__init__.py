"""Failures of a run: its exceptions, and the search for the cause among several failures."""
