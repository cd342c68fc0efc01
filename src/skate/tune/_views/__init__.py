"""What an experiment shows of itself."""
