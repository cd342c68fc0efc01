"""Replaces parts of `ray.util` that have no function in Skate."""
