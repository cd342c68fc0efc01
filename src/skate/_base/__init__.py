"""Ids, options and serialization, which all engines share."""
