"""The HTTP application in front of the models."""
