"""Configuration of deployments, of the listeners and of logging: defaults, validation and models."""
