"""The server of a model: requests in, answers of the engine out."""
