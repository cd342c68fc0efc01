"""Readers and writers: one module per format, and what they share."""
