"""The progress display, the plots and the report of an experiment."""
