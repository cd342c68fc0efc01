"""Resumable writes: how they are split into units, and how they record committed units."""
