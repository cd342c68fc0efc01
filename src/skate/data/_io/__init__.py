"""Readers and writers: one module per format, and the code that they share."""
