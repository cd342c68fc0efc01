"""Model multiplexing: the models that a replica has loaded."""
