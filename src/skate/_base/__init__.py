"""Ids, options and serialization: what every engine shares."""
