"""Requests and responses of the HTTP API: OpenAI's shapes, as models."""
