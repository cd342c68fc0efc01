"""Requests and responses of the HTTP API, as pydantic models."""
