"""Engines that run a language model in this process."""
