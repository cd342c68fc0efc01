"""Writes that note the ids of rows, and leave out the rows that an earlier run has written."""
