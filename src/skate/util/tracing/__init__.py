"""Startup hooks for OpenTelemetry, under Ray's names."""

__all__: list[str] = []
