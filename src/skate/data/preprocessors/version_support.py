"""Support for saving custom preprocessors so that later versions can load them."""

from __future__ import annotations

from skate.data._preprocessors.registry import SerializablePreprocessor, UnknownPreprocessorError

__all__ = ["SerializablePreprocessor", "UnknownPreprocessorError"]
