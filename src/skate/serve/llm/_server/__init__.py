"""The server of a model, which answers requests with its engine."""
